"""A private NATS server with JetStream."""

from __future__ import annotations

import shutil
import socket

from twicesafe.storm.broker import Broker
from twicesafe.storm.errors import StormError


class PrivateNats(Broker):
    """Streams lie in its folder, and survive restarts."""

    @property
    def url(self) -> str:
        """For clients."""
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        program = shutil.which("nats-server")
        if program is None:
            raise StormError("no nats-server was found: install NATS")
        return [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "streams")]

    def greeted(self, connection: socket.socket) -> bool:
        return connection.recv(5) == b"INFO "
