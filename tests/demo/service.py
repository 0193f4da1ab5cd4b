"""The demo as a user starts it: a process of its own, on a port of its own, watched from outside."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

PATIENCE = 30.0
"""Seconds that a machine with other things to do may take to start or stop the demo."""


class Demo(NamedTuple):
    """A running demo."""

    process: subprocess.Popen[str]
    said: str
    """What it printed."""
    url: str
    file: Path

    def charges(self, lane: str, shopper: str) -> list[int]:
        """The amounts that stand in the ledger for this shopper, in cents, oldest first: the effects."""
        file = self.file if lane == "safe" else self.file.with_name("payments-naive.db")
        with closing(sqlite3.connect(file)) as connection:
            rows = connection.execute("SELECT amount FROM charges WHERE shopper = ? ORDER BY id", (shopper,))
            return [amount for (amount,) in rows]

    def children(self) -> set[int]:
        """The server processes."""
        pid = self.process.pid
        found = Path(f"/proc/{pid}/task/{pid}/children")
        return {int(child) for child in found.read_text().split()}

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end. Returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def demo(folder: Path, port: int | None = None, *options: str) -> Iterator[Demo]:
    """A demo whose ledger is kept in `folder`; killed with its children if it is not stopped before."""
    file = folder / "payments.db"
    wished = free_port() if port is None else port
    process = subprocess.Popen(
        [sys.executable, "-m", "twicesafe.demo", str(wished), str(file), *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = ""
    try:
        while "Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, f"the demo ended with {process.wait(PATIENCE)}"
            said += line
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found is not None
        yield Demo(process, said, found[0], file)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()  # its servers end with its pipe to them
                process.wait()
        process.stdout.close()


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
