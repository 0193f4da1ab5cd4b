"""A client is killed at every point of reserving and sending; whoever resumes its intent charges nobody twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import twicesafe_within
from tests.client.dying import Nursery, nursery
from tests.client.test_with_the_server import shop
from twicesafe.client import IntentStore, Standing

PHASES = {
    "reserve": "INSERT INTO intents",
    "begin": "INSERT INTO runs",
    "sent": "http11.send_request_body.complete",
    "answering": "http11.receive_response_headers.complete",
    "answered": "answered",
    "recording": "UPDATE runs SET",
    "recorded": "recorded",
}
"""Points by their names."""


class Till:
    """A server that charges once per key, gives the first answer again, and keeps every request it has read."""

    def __init__(self) -> None:
        self.charges: list[tuple[str, str]] = []
        """Cart and key, one for each charge."""
        self.hits: list[tuple[str, str, bytes]] = []
        """Cart, key and bytes, one for each request."""
        self._guard = threading.Lock()

    def charge(self, key: str, body: bytes) -> bool:
        """Whether it was charged before."""
        cart = json.loads(body)["cart"]
        with self._guard:
            self.hits.append((cart, key, body))
            replayed = (cart, key) in self.charges
            if not replayed:
                self.charges.append((cart, key))
        return replayed

    @contextmanager
    def open(self) -> Iterator[str]:
        """Its address."""
        till = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                body = self.rfile.read(size)
                if len(body) < size:
                    return
                replayed = till.charge(self.headers["Idempotency-Key"], body)
                self.send_response(201)
                if replayed:
                    self.send_header("Idempotent-Replayed", "true")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    return

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()


@pytest.fixture(scope="module")
def till() -> Iterator[tuple[Till, str]]:
    server = Till()
    with server.open() as origin:
        yield server, origin


@pytest.fixture(scope="module")
def rehearsed(till: tuple[Till, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Nursery, list[str]]]:
    """The children's process, and the points that they pass."""
    with nursery() as opened:
        file = tmp_path_factory.mktemp("rehearsed") / "intents.db"
        told = opened.rehearse(file=str(file), origin=till[1], name="rehearsed", die_at=None)
        assert told["succeeded"]
        yield opened, told["points"]


@pytest.fixture
def children(rehearsed: tuple[Nursery, list[str]]) -> Nursery:
    return rehearsed[0]


@pytest.fixture
def points(rehearsed: tuple[Nursery, list[str]]) -> list[str]:
    return rehearsed[1]


def test_a_client_killed_at_any_point_charges_once(
    children: Nursery, points: list[str], till: tuple[Till, str], tmp_path: Path
) -> None:
    """R33, R34, R42, I8: SIGKILL before each write and at each step of the transport; a new process does the same.

    One charge, one key, the same bytes; and where the file says that nothing was sent, nothing was.
    """
    server, origin = till
    assert [name for name in PHASES.values() if name not in points] == []
    unsent = 0
    for number, point in enumerate(points):
        task = {"file": str(tmp_path / f"{number}.db"), "origin": origin, "name": f"cart {number}"}
        assert children.child(**task, die_at=number)["killed"], point
        found = IntentStore(task["file"]).find(task["name"])
        before = [hit for hit in server.hits if hit[0] == task["name"]]
        provably_not_sent = found is None or found.standing is Standing.RESERVED
        unsent += provably_not_sent
        resumed = children.child(**task, die_at=None)
        hits = [hit for hit in server.hits if hit[0] == task["name"]]
        charges = [charge for charge in server.charges if charge[0] == task["name"]]
        assert charges == [(task["name"], resumed["key"])], point
        assert len(set(hits)) == 1, point
        if provably_not_sent:
            assert (before, len(hits)) == ([], 1), point
        if found is not None:
            assert found.intent.key == resumed["key"], point
        assert resumed["succeeded"], point
        after = IntentStore(task["file"]).find(task["name"])
        assert after is not None and after.standing is Standing.SUCCEEDED, point
    assert 0 < unsent < len(points)


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_client_is_resumed_from_the_command_line(
    children: Nursery, till: tuple[Till, str], tmp_path: Path, phase: str
) -> None:
    """R34, R42, I8: `twicesafe intents resume` sends what was cut off, with its key and its bytes: one charge."""
    server, origin = till
    task = {"file": str(tmp_path / "intents.db"), "origin": origin, "name": f"by hand, {phase}"}
    assert children.child(**task, die_at=PHASES[phase])["killed"]
    ran = twicesafe_within("intents", "resume", task["file"], "--unsent", "--json")
    assert ran.status == 0, ran.err
    hits = {hit for hit in server.hits if hit[0] == task["name"]}
    charges = [charge for charge in server.charges if charge[0] == task["name"]]
    reserved = phase != "reserve"
    assert (len(charges), len(hits)) == (reserved, reserved)
    told = {one["name"]: one["standing"] for one in ran.json["intents"]}
    assert told == ({} if phase in ("reserve", "recorded") else {task["name"]: "succeeded"})


def test_a_killed_client_and_twicesafes_own_server(children: Nursery, tmp_path: Path) -> None:
    """R33, R34, R42, I8: the same against a server that keeps its promise: one row for each intent, whoever died."""
    with shop() as (ledger, origin):
        for phase, point in PHASES.items():
            task = {"file": str(tmp_path / f"{phase}.db"), "origin": origin, "name": phase}
            assert children.child(**task, die_at=point)["killed"]
            resumed = children.child(**task, die_at=None)
            assert [row for row in ledger.rows if row["cart"] == phase] == [{"cart": phase}]
            assert resumed["succeeded"], phase


def test_two_intents_of_equal_data_are_two_charges(children: Nursery, till: tuple[Till, str], tmp_path: Path) -> None:
    """R1, R33, I8: two that are the same but for their names are cut off and resumed: two keys, two charges."""
    server, origin = till
    file = str(tmp_path / "intents.db")
    keys = set()
    for name in ("equal, first", "equal, second"):
        task = {"file": file, "origin": origin, "name": name}
        assert children.child(**task, die_at=PHASES["sent"])["killed"]
        keys.add(children.child(**task, die_at=None)["key"])
    assert len({charge for charge in server.charges if charge[0].startswith("equal")}) == 2
    assert {key for cart, key, _ in server.hits if cart.startswith("equal")} == keys and len(keys) == 2


def test_processes_that_do_the_same_at_once_are_one(children: Nursery, till: tuple[Till, str], tmp_path: Path) -> None:
    """R34, I8: processes that make the file, reserve one name and send it at once: one key, one charge, all told."""
    server, origin = till
    task = {"file": str(tmp_path / "intents.db"), "origin": origin, "name": "rivals"}
    told = children.rivals(6, **task, die_at=None)
    assert [charge for charge in server.charges if charge[0] == "rivals"] == [("rivals", told[0]["key"])]
    assert [one["succeeded"] for one in told] == [True] * 6
    assert {one["key"] for one in told} == {told[0]["key"]}
