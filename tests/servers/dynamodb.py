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
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock, Thread
from types import TracebackType
from typing import Any, TypeAlias

import pytest
from moto.core.request import Request
from moto.dynamodb.responses import DynamoHandler

REGION = "eu-central-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
"""Any will do; without any, AWS's libraries would look for some on the network."""

VERSION = "DynamoDB_20120810."

Answer: TypeAlias = tuple[int, dict[str, Any], str | bytes]
"""Status, header lines, body."""


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
        self._tokens: dict[str, tuple[str, Answer]] = {}
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
        self._server = _Server(("127.0.0.1", 0), partial(_Handler, self._answer))
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, headers: Mapping[str, str], data: bytes) -> Answer | None:
        """None: hang up."""
        name = headers["X-Amz-Target"].removeprefix(VERSION)
        body = json.loads(data)
        self.before(name, body)
        with self._lock:
            if self.record:
                self.seen.append((name, body))
            fault = None
            if self.faults and self.faults[0][0] == name:
                fault = self.faults.popleft()[1]
            if fault is Fault.LOST_REQUEST:
                return None
            if fault in _REFUSALS:
                return _refused(*_REFUSALS[fault])
            answer = self._perform(headers, data, body.get("ClientRequestToken"))
        if fault is Fault.LOST_ANSWER:
            return None
        if fault is Fault.FAILED:
            return _refused(500, "InternalServerError", {})
        return answer

    def _perform(self, headers: Mapping[str, str], data: bytes, token: str | None) -> Answer:
        digest = hashlib.sha256(data).hexdigest()
        if token in self._tokens:
            before, answer = self._tokens[token]
            assert before == digest, "a ClientRequestToken came with another request"
            return answer
        request = Request.from_primitives("POST", f"{self.endpoint}/", headers, data)
        answer = DynamoHandler.dispatch(request)
        if token is not None and answer[0] == 200:
            self._tokens[token] = digest, answer
        return answer


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024
    """More clients knock at once than the five that it would let wait."""


class _Handler(BaseHTTPRequestHandler):
    """Connections are kept, as DynamoDB keeps them: for each request a new one would take as long as the request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def __init__(self, answer: Callable[[Mapping[str, str], bytes], Answer | None], *arguments: Any) -> None:
        self._answer = answer
        super().__init__(*arguments)

    def do_POST(self) -> None:
        answer = self._answer(self.headers, self.rfile.read(int(self.headers["Content-Length"])))
        if answer is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        status, headers, body = answer
        data = body.encode() if isinstance(body, str) else body
        self.send_response_only(status)
        for name, line in ({**headers, "Content-Length": len(data)}).items():
            self.send_header(name, str(line))
        self.end_headers()
        self.wfile.write(data)


_REFUSALS: dict[Fault | None, tuple[int, str, dict[str, Any]]] = {
    Fault.THROTTLED: (400, "ProvisionedThroughputExceededException", {}),
    Fault.FORBIDDEN: (400, "AccessDeniedException", {}),
    Fault.CONFLICT: (
        400,
        "TransactionCanceledException",
        {"CancellationReasons": [{"Code": "TransactionConflict", "Message": "conflict"}, {"Code": "None"}]},
    ),
}


def _refused(status: int, code: str, more: dict[str, Any]) -> Answer:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": code, **more})
    return status, {"Content-Type": "application/x-amz-json-1.0"}, body


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
