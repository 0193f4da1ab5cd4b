"""The cases for clients in JavaScript: all servers stand at once, and one process or page plays every case."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from tests.client.bindings import WALL
from tests.client.cases import GROUPS
from tests.client.cases.acts import nobody
from tests.client.cases.case import Case, Trait
from tests.client.cases.playing import Seen, Stage, arriving, check, fraction_of, staged

ROOT = Path(__file__).parents[2]
PLAY = "/tests/client/cases/play.mjs"
SCRIPTS = {PLAY, "/js/twicesafe.js"}


class Played(NamedTuple):
    """What came of a case, for its test to look at."""

    stage: Stage
    key: str
    said: Mapping[str, Any]

    def check(self, traits: frozenset[Trait]) -> None:
        """As for every other client."""
        assert "error" not in self.said, self.said["error"]
        content = self.said["content"]
        seen = Seen(**{**self.said, "content": None if content is None else content.encode()})
        check(self.stage, seen, self.key, traits)


class Cases:
    """The servers of all cases. `told` is what a client has to know of each; a page for one is at `origin`."""

    def __init__(self, stages: Mapping[str, Stage], origin: str) -> None:
        self.origin = origin
        self._stages = stages
        self._keys = {name: f"key of case {number}" for number, name in enumerate(stages)}
        self.told = {
            name: _told(stage, self._keys[name], f"{origin}/{number}")
            for number, (name, stage) in enumerate(stages.items())
        }

    def played(self, said: Mapping[str, Any]) -> dict[str, Played]:
        """By name: what a client said of each case."""
        return {name: Played(stage, self._keys[name], said[name]) for name, stage in self._stages.items()}


def _told(stage: Stage, key: str, control: str) -> dict[str, Any]:
    """A case as play.mjs takes it. Bytes travel as base64."""
    case = stage.case
    operation = case.operation
    body = arriving(case)
    headers = dict(operation.headers)
    if case.body == "json" and body:
        headers["Content-Type"] = "application/json"
    return {
        "method": operation.method,
        "contract": operation.contract,
        "headers": headers,
        "url": stage.url,
        "key": key,
        "body": b64encode(body).decode("ascii") if body else None,
        "limits": case.limits._asdict(),
        "fraction": fraction_of(case),
        "wall": WALL,
        "control": control if nobody in case.acts or case.takes_time else None,
    }


@contextmanager
def standing(cases: Mapping[str, Case], *, cors: bool = False) -> Iterator[Cases]:
    """All their servers, and one that says whether they have fallen silent, is told how often a case's client has
    waited, and serves pages their scripts: `/number/silent/attempt`, `/number/waited/count`, and paths in here."""
    with ExitStack() as stack:
        stages = {name: stack.enter_context(staged(case, cors=cors)) for name, case in cases.items()}
        control = stack.enter_context(_listening([*stages.values()]))
        yield Cases(stages, control)


@contextmanager
def _listening(stages: Sequence[Stage]) -> Iterator[str]:
    class Control(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path in SCRIPTS:
                self._answer(200, "text/javascript", (ROOT / self.path[1:]).read_bytes())
                return
            if self.path == "/":
                self._answer(200, "text/html", b"<!doctype html>")
                return
            number, what, count = self.path.strip("/").split("/")
            stage = stages[int(number)]
            if what == "waited":
                stage.after_wait(int(count))
            silent = what == "silent" and stage.falls_silent(int(count))
            self._answer(200 if silent else 204)

        def _answer(self, status: int, kind: str = "text/plain", body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            with suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nobody wants to know."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Control)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def cases_for(traits: frozenset[Trait]) -> dict[str, tuple[str, Case]]:
    """The cases of a client with these traits, by name, each with its group."""
    return {
        f"{case.operation.method} {case.operation.contract}, {case.name}": (group, case)
        for group, cases in GROUPS.items()
        for told in cases
        for case in [told.by(traits)]
        if case is not None
    }
