"""A process whose children reserve and send intents, and kill themselves at a given point of that.

    python -m tests.client.dying

It reads a task a line, forks a child for it, and writes what became of the child, a line each. A child passes a point
before each statement that can change the file, at each step of the HTTP transport, and when `send` has returned; at the
one it was told to die at it sends itself SIGKILL. Forking from a process that has one thread, and has done it all once
itself, is what makes a hundred deaths affordable.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx2

from tests.client.bindings import NO_TLS, QUICK
from twicesafe.client import Budgets, Intent, IntentStore, Outcome, Succeeded
from twicesafe.client.httpx import send

CONNECT = sqlite3.connect


class Points:
    """Those that a child has passed."""

    def __init__(self, die_at: int | str | None) -> None:
        self.passed: list[str] = []
        self._die_at = die_at

    def passing(self, name: str) -> None:
        """Here it may end. `die_at` is the number of a point, from 0, or its name."""
        here = len(self.passed)
        self.passed.append(name)
        if self._die_at in (here, name):
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(self, connect: Any) -> Any:
        """sqlite3.connect, with each statement of the connection a point."""

        def connected(*given: Any, **how: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*given, **how)
            connection.set_trace_callback(stated)
            return connection

        def stated(statement: str) -> None:
            changes = statement.startswith("PRAGMA") <= ("=" in statement)
            if changes and statement != "BEGIN" and not statement.startswith("SELECT"):
                self.passing(" ".join(statement.split()[:3]))

        return connected

    def sending(self, *given: Any, **how: Any) -> Outcome[Any]:
        """`send`, and a point once it has returned."""
        outcome: Outcome[Any] = send(*given, **how)
        self.passing("answered")
        return outcome


class Traced(httpx2.HTTPTransport):
    """A transport whose steps are points."""

    def __init__(self, points: Points) -> None:
        super().__init__(verify=NO_TLS)
        self._points = points

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        heard = request.extensions["trace"]

        def trace(event: str, info: Mapping[str, Any]) -> None:
            heard(event, info)
            self._points.passing(event)

        request.extensions = {**request.extensions, "trace": trace}
        return super().handle_request(request)


def live(task: Mapping[str, Any]) -> dict[str, Any]:
    """What an application does: reserve, and send. A restart does the same again, and makes a new key for it."""
    points = Points(task["die_at"])
    sqlite3.connect = points.watched(CONNECT)
    name, url = task["name"], f"{task['origin']}/charges"
    intents = IntentStore(task["file"])
    reserved = intents.reserve(name, Intent.new("POST", url, json={"cart": name}), remembers=timedelta(hours=1))
    with httpx2.Client(transport=Traced(points)) as client:
        outcome = intents.send(client, reserved, by=points.sending, policy=QUICK, budgets=Budgets())
    points.passing("recorded")
    return {"points": points.passed, "succeeded": isinstance(outcome, Succeeded), "key": reserved.intent.key}


def fork(task: Mapping[str, Any]) -> tuple[int, int]:
    """A child that does the task: its number, and where what it says can be read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, json.dumps(live(task)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    return child, reading


def collected(child: int, reading: int) -> dict[str, Any]:
    """What became of a child."""
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return {"killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, **json.loads(said or b"{}")}


def done(task: Mapping[str, Any]) -> Any:
    """What became of it: done here, by one child, or by so many at once."""
    if task.get("itself"):
        return live(task)
    children = [fork(task) for _ in range(task.get("rivals", 1))]
    told = [collected(*child) for child in children]
    return told if "rivals" in task else told[0]


class Nursery:
    """The process, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def rehearse(self, **task: Any) -> dict[str, Any]:
        """Have the process itself do a task, so that its children need not import and read what they do it with."""
        told: dict[str, Any] = self._ask({**task, "itself": True})
        return told

    def rivals(self, rivals: int, **task: Any) -> list[dict[str, Any]]:
        """Have so many children do a task at once."""
        told: list[dict[str, Any]] = self._ask({**task, "rivals": rivals})
        return told

    def child(self, **task: Any) -> dict[str, Any]:
        """Have a child do a task, to its end or its death."""
        told: dict[str, Any] = self._ask(task)
        return told

    def _ask(self, task: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Start it, and end it."""
    command = [sys.executable, "-m", "tests.client.dying"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(done(json.loads(line))) + "\n")
        sys.stdout.flush()
