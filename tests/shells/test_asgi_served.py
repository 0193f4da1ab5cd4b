"""The ASGI shell under uvicorn, hypercorn and granian: what is on the wire, and clients that go away."""

from __future__ import annotations

import http.client
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.shells.probe import RETENTION
from tests.shells.served import BODY, LINES

APP = "tests.shells.served:app"
SERVERS = {
    "uvicorn": lambda port: ["uvicorn", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning", APP],
    "hypercorn": lambda port: ["hypercorn", "--bind", f"127.0.0.1:{port}", APP],
    "granian": lambda port: ["granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", str(port), APP],
}
PATIENCE = 30.0


def until(met: Callable[[], object]) -> None:
    """Wait for something another process does."""
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end, "it did not happen"
        threading.Event().wait(0.01)


class Served:
    """One server, its ledger and its gates."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    def effects(self) -> int:
        with closing(sqlite3.connect(self.folder / "ledger.db")) as connection:
            return int(connection.execute("SELECT count(*) FROM ledger").fetchone()[0])

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    def post(self, key: str, path: str = "/jobs", body: bytes = b"x") -> tuple[int, list[tuple[str, str]], bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("POST", path, body, {"Idempotency-Key": key})
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()

    def ask(self, key: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """What became of a key."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request(method, "/keys", headers={"Idempotency-Key": key})
            answer = connection.getresponse()
            return answer.status, {name.lower(): line for name, line in answer.getheaders()}, answer.read()

    def raw(self, sent: bytes) -> socket.socket:
        wire = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        wire.sendall(sent)
        return wire

    def settled(self, key: str, path: str, body: bytes = b"x") -> tuple[int, list[tuple[str, str]], bytes]:
        """Ask until the first attempt is over."""
        found = [self.post(key, path, body)]
        until(lambda: found[-1][0] != 409 or found.append(self.post(key, path, body)))
        return found[-1]


@contextmanager
def serving(name: str, folder: Path) -> Iterator[Served]:
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE ledger (id INTEGER PRIMARY KEY)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "TWICESAFE_TEST_FOLDER": str(folder), "PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen([sys.executable, "-m", *SERVERS[name](port)], env=environment)

    def ready() -> bool:
        assert process.poll() is None, "the server ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(ready)
        yield Served(folder, port)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module", params=SERVERS)
def served(request, tmp_path_factory):
    with serving(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


def lines_of(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Without what the server itself adds."""
    own = {"date", "server", "connection", "transfer-encoding", "content-length"}
    return [(name.lower().encode(), line.encode("latin-1")) for name, line in headers if name.lower() not in own]


def test_a_replay_is_the_same_on_the_wire(served):
    """D1, D4, R17: status, every header line and all 256 byte values of a replay equal the first answer's."""
    before = served.effects()
    first = served.post("wire")
    again = served.post("wire")
    assert served.effects() == before + 1
    assert first[0] == again[0] == 201
    assert first[2] == again[2] == BODY
    # hyper, which granian is built on, puts lines of one name together; their order among themselves is theirs.
    assert sorted(lines_of(first[1])) == sorted([RETENTION, *LINES])
    assert sorted(lines_of(again[1])) == sorted([RETENTION, *LINES, (b"idempotent-replayed", b"true")])
    for name in (b"set-cookie", b"link"):
        assert [line for line in lines_of(again[1]) if line[0] == name] == [line for line in LINES if line[0] == name]


def test_a_client_that_goes_away_changes_nothing(served):
    """A1a, A7, R14: the socket is closed while the handler works; the work is finished, recorded and replayed."""
    before = served.effects()
    wire = served.raw(b"POST /slow HTTP/1.1\r\nHost: x\r\nIdempotency-Key: gone\r\nContent-Length: 1\r\n\r\nx")
    until(lambda: served.effects() == before + 1)
    assert served.post("gone", "/slow")[0] == 409
    wire.close()
    served.open("gate")
    status, headers, body = served.settled("gone", "/slow")
    assert served.effects() == before + 1
    assert (status, body) == (201, BODY)
    assert ("idempotent-replayed", "true") in [(name.lower(), line) for name, line in headers]


def test_a_lost_answer_is_asked_for_without_the_request(served):
    """R17, I11: the look-up gives a client that hung up all bytes of its answer; a closed key lets nothing in."""
    before = served.effects()
    assert served.ask("asked")[0] == 404
    wire = served.raw(b"POST /jobs HTTP/1.1\r\nHost: x\r\nIdempotency-Key: asked\r\nContent-Length: 1\r\n\r\nx")
    until(lambda: served.effects() == before + 1)
    wire.close()
    until(lambda: served.ask("asked")[0] == 201)
    _, lines, body = served.ask("asked")
    assert (body, lines["idempotent-replayed"], lines["cache-control"]) == (BODY, "true", "no-store")
    assert served.effects() == before + 1
    status, _, told = served.ask("closed", "DELETE")
    assert (status, b'"final":true' in told) == (404, True)
    assert served.post("closed")[0] == 422
    assert served.effects() == before + 1


def test_half_an_upload_never_runs(served):
    """H1, R9, K: the client vanishes in its upload; nothing runs, and the whole request runs once afterwards."""
    before = served.effects()
    wire = served.raw(b"POST /jobs HTTP/1.1\r\nHost: x\r\nIdempotency-Key: half\r\nContent-Length: 10\r\n\r\n12345")
    wire.close()
    status, *_ = served.post("half", body=b"1234567890")
    assert status == 201
    assert served.effects() == before + 1


def test_a_stream_flows_and_is_replayed(served):
    """D5, R18: the first chunk arrives while the handler still waits to make the second; the replay has them all."""
    before = served.effects()
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)) as connection:
        connection.request("POST", "/stream", b"x", {"Idempotency-Key": "stream"})
        answer = connection.getresponse()
        assert answer.read(4) == b"one "
        for gate in ("gate1", "gate2"):
            served.open(gate)
        assert answer.read() == b"two three"
    status, _, body = served.settled("stream", "/stream")
    assert served.effects() == before + 1
    assert (status, body) == (201, b"one two three")


def test_sixteen_at_once_run_once(served):
    """C1, R10, R42: sixteen connections send one request at once: one effect, 201 or 409 for everybody."""
    before = served.effects()
    with ThreadPoolExecutor(16) as threads:
        statuses = list(threads.map(lambda _: served.post("rivals")[0], range(16)))
    assert served.effects() == before + 1
    assert set(statuses) <= {201, 409}
    assert served.post("rivals")[0] == 201


def test_expect_continue_is_answered(served):
    """F1: a body sent only after 100 Continue is the same request as one sent at once."""
    before = served.effects()
    wire = served.raw(
        b"POST /jobs HTTP/1.1\r\nHost: x\r\nIdempotency-Key: expect\r\nContent-Length: 1\r\n"
        b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    assert wire.recv(1024).startswith(b"HTTP/1.1 100")
    wire.sendall(b"x")
    answer = b""
    while piece := wire.recv(65536):
        answer += piece
    wire.close()
    assert b" 201 " in answer.split(b"\r\n", 1)[0]
    assert served.post("expect")[0] == 201
    assert served.effects() == before + 1
