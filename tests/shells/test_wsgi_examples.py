"""The examples of the documents, as a user would copy them, under gunicorn with two processes."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

DOCUMENTS = Path(__file__).parents[2] / "docs" / "frameworks"
PATIENCE = 60.0
WORKERS = {"sync": ["-k", "sync", "-w", "2"], "gthread": ["-k", "gthread", "-w", "2", "--threads", "4", "--preload"]}
EXAMPLES = {"wsgi": "gthread", "flask": "sync", "falcon": "gthread"}


def example(name: str) -> str:
    """The first block of Python of a document."""
    found = re.search(r"```python\n(.*?)```", (DOCUMENTS / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


class Served:
    """One example under gunicorn."""

    def __init__(self, name: str, workers: str, folder: Path) -> None:
        self.folder = folder
        (folder / "example.py").write_text(example(name), encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "gunicorn", "example:app", "-b", f"127.0.0.1:{self.port}", *WORKERS[workers]]
        self.process = subprocess.Popen(command, cwd=folder)

    def await_ready(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None and time.monotonic() < end
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            threading.Event().wait(0.02)

    def ask(self) -> tuple[int, object, str | None]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            lines = {"Idempotency-Key": "k-1", "X-User": "ada", "Content-Type": "application/json"}
            connection.request("POST", "/charges", json.dumps({"cents": 5}), lines)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), answer.getheader("Idempotent-Replayed")

    def charges(self) -> int:
        with closing(sqlite3.connect(self.folder / "shop.db")) as db:
            return int(db.execute("SELECT count(*) FROM charges").fetchone()[0])


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """All examples, started side by side."""
    servers = {name: Served(name, workers, tmp_path_factory.mktemp(name)) for name, workers in EXAMPLES.items()}
    yield servers
    for server in servers.values():
        server.process.send_signal(signal.SIGINT)
    for server in servers.values():
        server.process.wait(PATIENCE)


@pytest.mark.parametrize("name", ["wsgi", "flask", "falcon"])
def test_the_example_runs_under_gunicorn(name, served):
    """R11, R42: eight attempts at once, over two processes, are one charge with one answer."""
    server = served[name]
    server.await_ready()
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: server.ask(), range(8)))
    assert server.charges() == 1
    assert {status for status, *_ in answers} <= {201, 409}
    assert server.ask() == (201, {"id": 1}, "true")
