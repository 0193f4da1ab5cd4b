"""A worker as people run it: a process of its own, beside processes that are really killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import twicesafe_within
from tests.cuts.market import STEPS

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).with_name("jobs.py")


class Place:
    """A shop's database, and processes on it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.db"
        self.environment = {
            **os.environ,
            "SHOP_DB": str(self.file),
            "PYTHONPATH": os.pathsep.join([str(JOBS.parent), str(ROOT), str(ROOT / "src")]),
        }

    def killed_at(self, *numbers: int) -> None:
        """For each number a process that begins an operation and is killed at that step."""
        command = [sys.executable, str(JOBS), "run", *map(str, numbers)]
        subprocess.run(command, env=self.environment, check=True, timeout=60)

    @contextmanager
    def worker(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """`twicesafe worker`, stopped by SIGTERM at the end."""
        command = [sys.executable, "-m", "twicesafe", "worker", *options]
        process = subprocess.Popen(
            command, env=self.environment, cwd=JOBS.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=30)

    def value(self, query: str, file: Path | None = None) -> Any:
        with closing(sqlite3.connect(file or self.file, timeout=30)) as connection:
            return connection.execute(query).fetchone()[0]

    def until(self, query: str, wanted: object) -> None:
        """Wait, within bounds, until the database says so."""
        until = time.monotonic() + 90
        while self.value(query) != wanted:
            assert time.monotonic() < until, self.value(query)
            threading.Event().wait(0.02)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


COMPLETED = "SELECT count(*) FROM twicesafe_records WHERE state = 'completed'"


def test_processes_killed_at_every_step_are_gone_on_with_by_a_worker_alone(place: Place) -> None:
    """R24, R25, R27, I10, A7: SIGKILL at each step of 22 operations; four rows and two charges of each."""
    numbers = range(1, STEPS + 1)
    place.killed_at(*numbers)
    assert place.value(COMPLETED) == 0
    with place.worker("--app", "jobs:worker"):
        place.until(COMPLETED, len(numbers))
    assert place.value("SELECT count(*) FROM steps") == 4 * len(numbers)
    assert place.value("SELECT count(*) FROM charges", Path(f"{place.file}.provider")) == 2 * len(numbers)


def test_it_settles_what_is_unknown_says_how_it_is_and_stops_cleanly(place: Place) -> None:
    """R26, R27: reconcilers run beside; GET /health tells; SIGTERM ends it with status 0."""
    script = "import jobs; jobs.prepare()\ntry: jobs.lost()\nexcept TimeoutError: pass"
    subprocess.run([sys.executable, "-c", script], env=place.environment, check=True, timeout=60)
    assert place.value("SELECT state FROM twicesafe_records") == "unknown"
    port = free_port()
    options = ("--app", "jobs:once", "--app", "jobs:reconcilers", "--store", f"sqlite:///{place.file}")
    with place.worker(*options, "--every", "0.1", "--health", f"127.0.0.1:{port}") as process:
        place.until("SELECT count(*) FROM twicesafe_records", 0)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
            told = json.load(answer)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert told["healthy"] is True
    assert [part["part"] for part in told["parts"]] == ["resume", "reconcile", "reap"]


ENDING = """
from twicesafe.once import AsyncOnce
from twicesafe.stores.memory import AsyncMemoryStore

class Ending(AsyncOnce):
    async def resume(self, *settings, **named):
        raise SystemExit(0)

once = Ending(AsyncMemoryStore(), scope="s")
"""


def test_a_part_that_is_ended_is_told_of_once_and_ends_the_process_with_an_error(tmp_path: Path) -> None:
    """R27: a supervisor starts it again; what is told is told once, where no log is set up either."""
    (tmp_path / "ending.py").write_text(ENDING)
    command = [sys.executable, "-m", "twicesafe", "worker", "--app", "ending:once", "--every", "0.05"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert ran.stderr.count("worker.failed") == 1
    assert "was ended by SystemExit" in ran.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--app", "jobs"), "MODULE:OBJECT"),
        (("--app", "nothing.here:once"), "no module 'nothing'"),
        (("--app", "jobs:twice"), "no 'twice'"),
        (("--app", "jobs:charge"), "is a function"),
        (("--app", "jobs:worker", "--store", "sqlite:///x.db"), "--store is for parts"),
        (("--app", "jobs:once", "--health", "8081"), "HOST:PORT"),
        (("--app", "jobs:once", "--store", "mongodb://x"), "address begins with"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    place: Place, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    """R27: one line that names the option, and status 2."""
    monkeypatch.setenv("SHOP_DB", str(place.file))
    monkeypatch.syspath_prepend(JOBS.parent)
    try:
        ended = twicesafe_within("worker", *options)
    finally:
        # Another test has another place, which the module reads when it is loaded.
        sys.modules.pop("jobs", None)
    assert ended.status == 2, ended.err
    assert said in ended.err
    assert ended.err.count("\n") == 1
