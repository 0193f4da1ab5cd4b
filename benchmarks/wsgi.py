"""In-process cost of a keyed request around a Flask application: first requests and replays, memory store.

The floor is the leanest WSGI middleware that still claims, fingerprints, scopes, records and replays: no lease, no
answers in pieces, no cookies rule, no problem documents. `twicesafe` is the middleware for any WSGI application,
`twicesafe.flask` a contract on the view, and `bare` the application alone. See `asgi` for how a figure is taken; the
time is that of all threads, for one peer answers from an event loop in a thread of its own. wsgi_django measures Django
and REST framework.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from hashlib import sha256
from io import BytesIO
from itertools import repeat
from threading import Lock
from typing import Any

from flask import Flask, Response, request

from benchmarks.asgi import BATCH, ROUNDS, added, fresh_key
from benchmarks.measure import Row, Subject, interleaved, rows
from twicesafe.flask import Idempotency
from twicesafe.stores.memory import MemoryStore
from twicesafe.wsgi import IdempotencyMiddleware

SIZES = (
    ("1 KB", b'{"amount": 1, "note": "' + b"x" * 1000 + b'"}', b'{"id": "ch_1"}', 200),
    ("100 KB", b'{"amount": 1, "note": "' + b"x" * 100_000 + b'"}', b'{"id": "' + b"y" * 100_000 + b'"}', 60),
)


def application(answer: bytes, contract: Callable[[Flask], Callable[[Any], Any]] | None = None) -> Flask:
    """Reads its body and answers 201, under a contract perhaps."""
    app = Flask("benchmark")

    def work() -> Response:
        request.get_data()
        return Response(answer, 201, mimetype="application/json")

    app.post("/jobs")(work if contract is None else contract(app)(work))
    return app


def contract(app: Flask) -> Callable[[Any], Any]:
    """twicesafe's, for Flask."""
    made: Callable[[Any], Any] = Idempotency(app, MemoryStore(), scope=lambda: "user").operation()
    return made


class Lean:
    """The floor: what one would write by hand on an afternoon, and measure."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.records: dict[bytes, Any] = {}
        self.lock = Lock()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        key = environ.get("HTTP_IDEMPOTENCY_KEY")
        if environ["REQUEST_METHOD"] != "POST" or key is None:
            return self.app(environ, start_response)
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        digest = sha256(b"user\x00" + key.encode("latin-1")).digest()
        where = f"{environ['PATH_INFO']}\x00{environ['QUERY_STRING']}\x00".encode("latin-1")
        fingerprint = sha256(where + body).digest()
        with self.lock:
            record = self.records.get(digest)
            if record is None:
                self.records[digest] = (fingerprint, None)
        if record is not None:
            status, headers, answer = "409 Conflict", [], b""
            if record[0] != fingerprint:
                status = "422 Unprocessable Content"
            elif record[1]:
                status, headers, answer = record[1]
                headers = [*headers, ("Idempotent-Replayed", "true")]
            start_response(status, headers)
            return [answer]
        environ["wsgi.input"] = BytesIO(body)
        started: list[Any] = []

        def start(status: str, headers: Any, exc_info: Any = None) -> Any:
            started[:] = status, headers
            return None

        pieces = self.app(environ, start)
        try:
            whole = b"".join(pieces)
        finally:
            pieces.close()
        kept = [line for line in started[1] if line[0].lower() not in ("set-cookie", "date")]
        self.records[digest] = (fingerprint, (started[0], kept, whole))
        start_response(*started)
        return [whole]


def subjects() -> dict[str, Callable[[bytes], Any]]:
    """Name to what makes an application that gives this answer."""
    found: dict[str, Callable[[bytes], Any]] = {
        "bare": application,
        "floor": lambda answer: Lean(application(answer)),
        "twicesafe": lambda answer: IdempotencyMiddleware(
            application(answer).wsgi_app, MemoryStore(), scope=lambda environ: "user"
        ),
        "twicesafe.flask": lambda answer: application(answer, contract),
    }
    try:
        import idemkit

        found["idemkit"] = lambda answer: idemkit.WSGIIdempotencyMiddleware(
            application(answer).wsgi_app,
            backend=idemkit.InMemoryBackend(max_size=10**9),
            config=idemkit.HttpConfig(scope=lambda request: "user"),
        )
    except ImportError:
        pass
    return found


def environ(key: bytes, body: bytes) -> dict[str, Any]:
    """As a server makes it."""
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/jobs",
        "QUERY_STRING": "",
        "RAW_URI": "/jobs",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_HOST": "example.com",
        "HTTP_USER_AGENT": "benchmark/1",
        "HTTP_ACCEPT": "application/json",
        "HTTP_IDEMPOTENCY_KEY": key.decode("ascii"),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body),
        "wsgi.errors": None,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
    }


def discard(status: str, headers: Any, exc_info: Any = None) -> Any:
    """A server that writes to nowhere."""
    assert status[:3] == "201", status
    return None


def answered(app: Any, of: dict[str, Any]) -> None:
    """One request, to the end of its answer."""
    pieces = app(of, discard)
    for _ in pieces:
        pass
    if hasattr(pieces, "close"):
        pieces.close()


def fastest(app: Any, keys: Iterator[bytes], body: bytes, n: int) -> float:
    """Seconds of the processor for one request in the fastest of the batches that n requests make."""
    found = []
    for _ in range(max(1, n // BATCH)):
        calls = [environ(next(keys), body) for _ in range(BATCH)]
        began = time.process_time()
        while calls:
            answered(app, calls.pop())
        found.append((time.process_time() - began) / BATCH)
    return min(found)


def first_requests(make: Callable[[bytes], Any], answer: bytes, body: bytes) -> Callable[[int], Awaitable[float]]:
    """Seconds for one of n first requests, on a store that is empty when the round begins."""

    async def run(n: int) -> float:
        return await asyncio.to_thread(fastest, make(answer), iter(fresh_key, None), body, n)

    return run


def replayed(app: Any, key: bytes, body: bytes, n: int) -> float:
    """Seconds for one of n replays."""
    answered(app, environ(key, body))
    return fastest(app, repeat(key), body, n)


def replays(make: Callable[[bytes], Any], answer: bytes, body: bytes) -> Callable[[int], Awaitable[float]]:
    """Seconds for one of n replays of one request."""

    async def run(n: int) -> float:
        return await asyncio.to_thread(replayed, make(answer), fresh_key(), body, n)

    return run


async def measured() -> list[Row]:
    """All cases."""
    found: list[Row] = []
    for size, body, answer, times in SIZES:
        for case, how in (("first request", first_requests), ("replay", replays)):
            compared = [Subject(name, partial(how, make)(answer, body)) for name, make in subjects().items()]
            await interleaved(compared, rounds=ROUNDS, times=times)
            found += rows(f"{case}, {size}", "us", compared, lambda seconds: seconds * 1e6)
            if case == "first request":
                found += added(f"{case}, {size}", compared)
    return found


def run() -> list[Row]:
    """The benchmark, with wsgi_django."""
    from benchmarks import wsgi_django

    return [*asyncio.run(measured()), *wsgi_django.run()]
