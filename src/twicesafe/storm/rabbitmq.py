"""A private RabbitMQ server, with a name, a cookie and a port mapper of its own.

It needs some seconds to start, and more of a busy machine: start it once for many uses.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from twicesafe.storm.broker import STOP_TIMEOUT, Broker, free_port
from twicesafe.storm.errors import StormError

PROGRAMS: Final = (
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/usr/local/sbin/rabbitmq-server",
    "/opt/homebrew/sbin/rabbitmq-server",
)
"""Debian's own, not the one on PATH, which would run it as another user."""

HANDSHAKE: Final = b"AMQP\x00\x00\x09\x01"


class PrivateRabbitMQ(Broker):
    """Durable queues survive restarts."""

    def __init__(self) -> None:
        super().__init__()
        self._mapper_port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For clients."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def command(self) -> list[str]:
        found = next((program for program in PROGRAMS if Path(program).exists()), None)
        if found is None:
            raise StormError("no rabbitmq-server was found: install RabbitMQ")
        return [found]

    def environment(self) -> dict[str, str]:
        here = self.folder
        one_of_each = "+S 1:1 +SDcpu 1:1 +SDio 1 +A 1 +sbwt none"
        return {
            "HOME": str(here),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_ALLOW_INPUT": "1",  # so that the script becomes the server
            "RABBITMQ_CONF_ENV_FILE": str(here / "environment"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_LOG_BASE": str(here),
            "RABBITMQ_MNESIA_BASE": str(here / "data"),
            "RABBITMQ_NODENAME": "twicesafe@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_PID_FILE": str(here / "server.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-noinput -kernel inet_dist_use_interface {{127,0,0,1}} {one_of_each}"
            ),
        }

    def prepare(self) -> None:
        (self.folder / "environment").touch()
        (self.folder / "rabbitmq.conf").write_text("log.console.level = warning\n")
        (self.folder / "plugins").write_text("[].\n")
        mapper = shutil.which("epmd")
        if mapper is None:
            raise StormError("no epmd was found: it is Erlang's, and comes with RabbitMQ")
        with (self.folder / "mapper.log").open("ab") as out:
            self._mapper = self.run([mapper, "-address", "127.0.0.1", "-port", str(self._mapper_port)], out)

    def __exit__(self, *exc: object) -> None:
        self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait(STOP_TIMEOUT)
        super().__exit__(*exc)

    def greeted(self, connection: socket.socket) -> bool:
        connection.sendall(HANDSHAKE)
        return connection.recv(1) == b"\x01"
