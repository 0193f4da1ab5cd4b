"""The gateway's command and the service behind it, as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

from tests.gateway.scripted import PATIENCE, Caller
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.storm.tied import tied

EXPRESS = Path(__file__).parent / "express"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def until(met: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end, "it did not happen"
        Event().wait(0.02)


class Process(Caller):
    """Something that listens on a port of 127.0.0.1."""

    def __init__(self, port: int, command: list[str], folder: Path, **environment: str) -> None:
        super().__init__(port)
        self.command = tied(command)
        self.environment = {**os.environ, **environment}
        self.output = folder / f"{port}.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Any:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=output, stderr=output, start_new_session=True
            )
        until(lambda: self.listens() or self.process.poll() is not None)
        assert self.process.poll() is None, self.output.read_text()
        return self

    def listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it. Its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if how is signal.SIGTERM:
            process.send_signal(how)
        else:
            os.killpg(process.pid, how)
        try:
            status = process.wait(PATIENCE)
            # Of several processes one may outlive the first by a moment, with the socket.
            until(lambda: not self.listens())
            return status
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def express(folder: Path, port: int) -> Process:
    """The shop."""
    assert (EXPRESS / "node_modules" / "express").is_dir(), "make test installs Express; or: npm install, in " + str(
        EXPRESS
    )
    return Process(port, ["node", str(EXPRESS / "app.js")], folder, PORT=str(port))


def gateway(folder: Path, upstream: int, *options: str, port: int = 0) -> Process:
    """The command, with a SQLite file as its store."""
    file = folder / "records.db"
    with closing(SqliteStore(file)) as store:
        store.apply_schema()
    port = port or free_port()
    command = [
        sys.executable, "-m", "twicesafe", "gateway", "--listen", f"127.0.0.1:{port}", "--store", f"sqlite:///{file}",
        "--upstream", f"http://127.0.0.1:{upstream}", "--scope-header", "X-User-Id", *options,
    ]  # fmt: skip
    return Process(port, command, folder)
