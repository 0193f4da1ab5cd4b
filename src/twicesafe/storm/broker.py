"""What private brokers have in common: a folder and ports of their own on 127.0.0.1, gone with this process.

A broker can be frozen and killed, so that a message is on its way to it and its answer never comes.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from twicesafe.storm.errors import StormError
from twicesafe.storm.frozen import freeze
from twicesafe.storm.tied import tied

START_TIMEOUT: Final = 180.0
"""RabbitMQ takes more than a minute where others keep the machine busy."""
STOP_TIMEOUT: Final = 20.0


class Broker:
    """`with` starts it and throws it away. `restart` keeps its port and what it stored."""

    def __init__(self) -> None:
        self.port = free_port()
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path()

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """More of its environment."""
        return {}

    def greeted(self, connection: socket.socket) -> bool:
        """Whether what answers at the port is ready."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="twicesafe-broker-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._stack.callback(self.kill)
        try:
            self.prepare()
            self.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def prepare(self) -> None:
        """What it needs before its first start."""

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Returns when it serves."""
        log = self.folder / "server.log"
        with log.open("ab") as out:
            self._process = self.run(self.command(), out)
        deadline = time.monotonic() + START_TIMEOUT
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise StormError(f"{self.command()[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def run(self, command: list[str], out: object) -> subprocess.Popen[bytes]:
        """Start a program that ends with this one."""
        started: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603
            tied(command),
            cwd=self.folder,
            env={**os.environ, **self.environment()},
            stdin=subprocess.DEVNULL,
            stdout=out,  # type: ignore[call-overload]
            stderr=subprocess.STDOUT,
        )
        return started

    def freeze(self) -> None:
        """It goes on taking what comes over the network, and answers nothing."""
        assert self._process is not None
        freeze(self._process.pid)

    def kill(self) -> None:
        """As a power cut would. Nothing where it does not run."""
        self._end(signal.SIGKILL)

    def restart(self, *, crash: bool = False) -> None:
        """Stop it where it runs, in good order or as a power cut would, and start it again."""
        self._end(signal.SIGKILL if crash else signal.SIGTERM)
        self.start()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_TIMEOUT)

    def _ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                return self.greeted(connection)
        except OSError:
            return False


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
