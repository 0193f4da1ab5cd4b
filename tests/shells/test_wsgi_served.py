"""The WSGI shell under wsgiref, the plainest of servers: its input never ends, and it counts what it sends itself."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from io import BytesIO
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.validate import validator

import pytest

from twicesafe import PUBLIC, Policy
from twicesafe.stores.memory import MemoryStore
from twicesafe.wsgi import IdempotencyMiddleware

PATIENCE = 30.0
BODY = bytes(range(256)) * 4
LINES = [
    ("Content-Type", "application/octet-stream"),
    ("Set-Cookie", "a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT"),
    ("Set-Cookie", "b=2"),
    ("X-Latin", "caf\xe9"),
]


class Quiet(WSGIRequestHandler):
    """Says nothing."""

    def log_message(self, *said: object) -> None:
        """Nowhere."""


class Served:
    """An application that answers in the way its path names, and counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.closed = 0
        # Both what twicesafe gives the server and what it gives the application is held to the protocol.
        safe = IdempotencyMiddleware(
            validator(self.work), MemoryStore(), scope=PUBLIC, policy=Policy(store_cookies=True, body_limit=10_000)
        )
        self.server = make_server("127.0.0.1", 0, validator(safe), handler_class=Quiet)
        self.port = self.server.server_port

    def work(self, environ, start_response):
        self.runs += 1
        read = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        way = environ["PATH_INFO"]
        write = start_response("201 Created", [*LINES, ("X-Read", str(len(read)))])
        if way == "/generator":
            return (BODY[at : at + 100] for at in range(0, len(BODY), 100))
        if way == "/write":
            write(BODY[:500])
            return [BODY[500:]]
        if way == "/file":
            return environ["wsgi.file_wrapper"](BytesIO(BODY))
        return [BODY]

    def post(self, way: str, key: str | None = None, body: bytes = b"x" * 10):
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("POST", way, body, {"Idempotency-Key": key} if key else {})
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()

    def raw(self, sent: bytes) -> bytes:
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)) as wire:
            wire.sendall(sent)
            answer = b""
            # A server that refuses a body need not read it, and then its hanging up is a reset.
            with suppress(OSError):
                wire.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while piece := wire.recv(65536):
                    answer += piece
            return answer


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    served = Served()
    thread = threading.Thread(target=served.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.server.shutdown()
    thread.join(PATIENCE)
    served.server.server_close()


def own(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [line for line in headers if line[0] not in ("Date", "Server", "idempotency-key-retention")]


@pytest.mark.parametrize("way", ["/list", "/generator", "/write", "/file"])
def test_every_way_of_answering_comes_through_and_is_replayed(served, way):
    """K, D1, D4: nothing hangs or is cut; all 256 byte values and every line are the same without a key, with one, and
    on the replay."""
    before = served.runs
    plain, first, again = served.post(way), served.post(way, "key" + way), served.post(way, "key" + way)
    assert served.runs == before + 2
    assert [answer[0] for answer in (plain, first, again)] == [201] * 3
    assert plain[2] == first[2] == again[2] == BODY
    wanted = [*LINES, ("X-Read", "10")]
    for headers in (plain[1], first[1], again[1]):
        assert [line for line in own(headers) if line[0] not in ("Content-Length", "idempotent-replayed")] == wanted
    assert ("idempotent-replayed", "true") in again[1]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Content-Length: 10\r\n\r\n12345", b"400"),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n", b"400"),
        (b"Content-Length: 20000\r\n\r\n" + b"x" * 20_000, b"413"),
    ],
)
def test_a_body_that_cannot_be_had_claims_nothing(served, head, status):
    """R9, H1, K: half an upload, one this server cannot read, one too large: refused, and the key stays free."""
    before = served.runs
    key = f"refused-{status.decode()}-{len(head)}"
    answer = served.raw(b"POST /list HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %b\r\n%b" % (key.encode(), head))
    assert answer.split(b" ", 2)[1] == status
    assert served.runs == before
    assert served.post("/list", key)[0] == 201
    assert served.runs == before + 1
