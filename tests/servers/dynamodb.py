"""A private DynamoDB in this process: moto's, behind real HTTP on a free port of 127.0.0.1.

    with DynamodbServer() as server:
        store = DynamodbStore(server.new_table(), region=REGION, endpoint=server.endpoint)

moto is an emulator. It judges conditions and transactions as DynamoDB documents them, but one request is not kept from
another's middle, so here they are let in one by one; and it does not know ClientRequestToken, so here the answer to a
token is remembered. What may go wrong on the way can be asked for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from itertools import count
from threading import Lock, Thread
from types import TracebackType
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

REGION = "eu-central-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
"""Any will do; without any, AWS's libraries would look for some on the network."""

VERSION = "DynamoDB_20120810."


class Fault(Enum):
    """What becomes of a request."""

    LOST_REQUEST = auto()
    """It never arrives; the client sees its connection broken."""
    LOST_ANSWER = auto()
    """It is done; the client sees its connection broken."""
    THROTTLED = auto()
    CONFLICT = auto()
    """A transaction is cancelled because another one is at work on an item of it."""
    FAILED = auto()
    """It is done, and answered with 500."""
    FORBIDDEN = auto()


class DynamodbServer:
    """One server. `faults` befall the next requests for these operations, in this order."""

    def __init__(self) -> None:
        self._tables = count(1)
        self._lock = Lock()
        self._app = create_backend_app("dynamodb")
        self._tokens: dict[str, tuple[str, bytes, str, list[tuple[str, str]]]] = {}
        self.faults: deque[tuple[str, Fault]] = deque()
        self.before: Callable[[str, dict[str, Any]], object] = lambda name, body: None
        """Called with each operation and its arguments before it is let in."""
        self.seen: list[tuple[str, dict[str, Any]]] = []
        """Every operation that arrived, while `record` is true."""
        self.record = False

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def new_table(self) -> str:
        """A name that nobody has used."""
        return f"records{next(self._tables)}"

    def url(self, table: str) -> str:
        """As `open_store` takes it."""
        return f"dynamodb://{REGION}/{table}?endpoint={self.endpoint}"

    def __enter__(self) -> DynamodbServer:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        name = environ.get("HTTP_X_AMZ_TARGET", "").removeprefix(VERSION)
        length = int(environ.get("CONTENT_LENGTH") or 0)
        data = environ["wsgi.input"].read(length)
        body = json.loads(data or b"{}")
        self.before(name, body)
        with self._lock:
            if self.record:
                self.seen.append((name, body))
            fault = None
            if self.faults and self.faults[0][0] == name:
                fault = self.faults.popleft()[1]
            if fault is Fault.LOST_REQUEST:
                return _broken(environ)
            if fault in _REFUSALS:
                status, code, more = _REFUSALS[fault]
                return _refused(start_response, status, code, more)
            status, headers, answer = self._perform(environ, data, body.get("ClientRequestToken"))
        if fault is Fault.LOST_ANSWER:
            return _broken(environ)
        if fault is Fault.FAILED:
            return _refused(start_response, "500 Internal Server Error", "InternalServerError", {})
        start_response(status, headers)
        return [answer]

    def _perform(
        self, environ: dict[str, Any], data: bytes, token: str | None
    ) -> tuple[str, list[tuple[str, str]], bytes]:
        digest = hashlib.sha256(data).hexdigest()
        if token in self._tokens:
            before, answer, status, headers = self._tokens[token]
            assert before == digest, "a ClientRequestToken came with another request"
            return status, headers, answer
        kept: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[[bytes], object]:
            kept[:] = status, headers
            return lambda chunk: None

        environ["wsgi.input"] = _Again(data)
        answer = b"".join(self._app(environ, start))
        status, headers = kept
        if token is not None and status.startswith("200"):
            self._tokens[token] = digest, answer, status, headers
        return status, headers, answer


class _Again:
    """A body that has been read already."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int = -1) -> bytes:
        size = len(self._data) if size < 0 else size
        chunk, self._data = self._data[:size], self._data[size:]
        return chunk

    def readline(self, size: int = -1) -> bytes:
        return self.read(size)


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, kind: str, message: str, *arguments: Any) -> None:
        """Faults are asked for."""


_REFUSALS: dict[Fault | None, tuple[str, str, dict[str, Any]]] = {
    Fault.THROTTLED: ("400 Bad Request", "ProvisionedThroughputExceededException", {}),
    Fault.FORBIDDEN: ("400 Bad Request", "AccessDeniedException", {}),
    Fault.CONFLICT: (
        "400 Bad Request",
        "TransactionCanceledException",
        {"CancellationReasons": [{"Code": "TransactionConflict", "Message": "conflict"}, {"Code": "None"}]},
    ),
}


def _refused(start_response: Callable[..., Any], status: str, code: str, more: dict[str, Any]) -> list[bytes]:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": code, **more}).encode()
    start_response(status, [("Content-Type", "application/x-amz-json-1.0"), ("Content-Length", str(len(body)))])
    return [body]


def _broken(environ: dict[str, Any]) -> list[bytes]:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return []


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[DynamodbServer]:
    """One server for the whole session (one for each xdist worker): take a table of your own in it."""
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    try:
        with DynamodbServer() as server:
            yield server
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@pytest.fixture
def dynamodb_faults(dynamodb_server: DynamodbServer) -> Iterator[deque[tuple[str, Fault]]]:
    """What befalls the next requests; all of it has to have happened in the end."""
    assert not dynamodb_server.faults
    yield dynamodb_server.faults
    left = list(dynamodb_server.faults)
    dynamodb_server.faults.clear()
    assert left == []
