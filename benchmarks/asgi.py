"""In-process cost of a keyed request around a Starlette application: first requests and replays, memory store.

The floor is the leanest middleware that still claims, fingerprints, scopes, records and replays: no lease, no shield,
no streams, no cookies rule, no problem documents. `bare` is the application alone.

A round's figure is the processor time of its fastest small batch: a machine that is busy with something else makes
batches slower, never faster. What a store costs as it fills with keys is not in it, to the favour of one peer that
looks at all of them; a request is let go of before the next one, as a server does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from itertools import count, repeat
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.measure import Row, Subject, interleaved, rows
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.memory import AsyncMemoryStore

ROUNDS = 15
BATCH = 20
NUMBERS = count()


def application(answer: bytes) -> Starlette:
    """Reads its body and answers 201."""

    async def work(request: Request) -> Response:
        await request.body()
        return Response(answer, status_code=201, media_type="application/json")

    return Starlette(routes=[Route("/jobs", work, methods=["POST"])])


class Lean:
    """The floor: what one would write by hand on an afternoon, and measure."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.records: dict[bytes, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        key = None
        for name, value in scope["headers"]:
            if name == b"idempotency-key":
                key = value
                break
        if scope["method"] != "POST" or key is None:
            await self.app(scope, receive, send)
            return
        message = await receive()
        body = message["body"]
        while message.get("more_body"):
            message = await receive()
            body += message["body"]
        digest = sha256(b"user\x00" + key).digest()
        fingerprint = sha256(scope["raw_path"] + b"\x00" + scope["query_string"] + b"\x00" + body).digest()
        record = self.records.get(digest)
        if record is not None:
            status = 409
            headers: list[tuple[bytes, bytes]] = []
            answer = b""
            if record[0] != fingerprint:
                status = 422
            elif record[1]:
                status, headers, answer = record[1]
                headers = [*headers, (b"idempotent-replayed", b"true")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": answer})
            return
        self.records[digest] = (fingerprint, None)
        start: Any = None
        parts: list[bytes] = []

        async def replayed() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def capture(message: Any) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                whole = b"".join(parts)
                kept = [line for line in start["headers"] if line[0] not in (b"set-cookie", b"date")]
                self.records[digest] = (fingerprint, (start["status"], kept, whole))
                await send(start)
                await send({"type": "http.response.body", "body": whole})

        await self.app(scope, replayed, capture)


def peers() -> dict[str, Callable[[Any], Any]]:
    """The packages that can be installed beside us, each as its own documentation sets it up in memory."""
    found: dict[str, Callable[[Any], Any]] = {}
    try:
        import fastapi_idempotency_key as one

        found["fastapi-idempotency-key"] = lambda app: one.IdempotencyMiddleware(app, backend=one.MemoryBackend(10**9))
    except ImportError:
        pass
    try:
        import fastapi_idempotency as two

        found["fastapi-idempotency"] = lambda app: two.IdempotencyMiddleware(
            app, store=two.MemoryStore(), scope=lambda request: "user"
        )
    except ImportError:
        pass
    try:
        import idemkit as three

        found["idemkit"] = lambda app: three.IdempotencyMiddleware(
            app, backend=three.InMemoryBackend(max_size=10**9), config=three.HttpConfig(scope=lambda request: "user")
        )
    except ImportError:
        pass
    try:
        import idempotency_header_middleware as four
        from idempotency_header_middleware.backends.memory import MemoryBackend

        found["asgi-idempotency-header"] = lambda app: four.IdempotencyHeaderMiddleware(app, backend=MemoryBackend())
    except ImportError:
        pass
    return found


async def discard(message: Any) -> None:
    """A server that writes to nowhere."""


async def taken(message: Any) -> None:
    """The same, and it looks whether the request was taken at all: refusals are quick."""
    assert message.get("status", 201) == 201, message


def request(key: bytes, body: bytes) -> tuple[dict[str, Any], Any]:
    """A scope and a receive channel as a server makes them."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/jobs",
        "raw_path": b"/jobs",
        "root_path": "",
        "query_string": b"",
        "headers": [
            (b"host", b"example.com"),
            (b"user-agent", b"benchmark/1"),
            (b"accept", b"application/json"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"idempotency-key", key),
        ],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    message = {"type": "http.request", "body": body, "more_body": False}

    async def receive() -> Any:
        return message

    return scope, receive


def fresh_key() -> bytes:
    """A key no subject has seen."""
    return b"8e03978e-40d5-43e8-bc93-%012x" % next(NUMBERS)


async def fastest(app: Any, keys: Iterator[bytes], body: bytes, n: int) -> float:
    """Seconds for one request in the fastest of the batches that n requests make."""
    found = []
    for _ in range(max(1, n // BATCH)):
        calls = [request(next(keys), body) for _ in range(BATCH)]
        began = time.process_time()
        while calls:
            await app(*calls.pop(), discard)
        found.append((time.process_time() - began) / BATCH)
    await app(*request(next(keys), body), taken)
    return min(found)


def first_requests(make: Callable[[], Any], body: bytes) -> Callable[[int], Any]:
    """Seconds for one of n first requests, on a store that is empty when the round begins."""

    async def run(n: int) -> float:
        return await fastest(make(), iter(fresh_key, None), body, n)

    return run


def replays(make: Callable[[], Any], body: bytes) -> Callable[[int], Any]:
    """Seconds for one of n replays of one request."""

    async def run(n: int) -> float:
        app, key = make(), fresh_key()
        await app(*request(key, body), discard)
        return await fastest(app, repeat(key), body, n)

    return run


def subjects() -> dict[str, Callable[[Any], Any]]:
    """What is measured: name to what it puts around an application."""
    return {
        "bare": lambda app: app,
        "floor": Lean,
        "twicesafe": lambda app: IdempotencyMiddleware(app, AsyncMemoryStore(), scope=lambda scope: "user"),
        **peers(),
    }


async def measured() -> list[Row]:
    """All cases."""
    found: list[Row] = []
    for size, body, answer, times in (
        ("1 KB", b'{"amount": 1, "note": "' + b"x" * 1000 + b'"}', b'{"id": "ch_1"}', 200),
        ("100 KB", b'{"amount": 1, "note": "' + b"x" * 100_000 + b'"}', b'{"id": "' + b"y" * 100_000 + b'"}', 60),
    ):
        bare = application(answer)
        for case, how in (("first request", first_requests), ("replay", replays)):
            compared = [Subject(name, how(partial(make, bare), body)) for name, make in subjects().items()]
            await interleaved(compared, rounds=ROUNDS, times=times)
            found += rows(f"{case}, {size}", "us", compared, lambda seconds: seconds * 1e6)
            if case == "first request":
                found += added(f"{case}, {size}", compared)
    return found


def added(case: str, compared: list[Subject]) -> list[Row]:
    """What each subject adds to the bare application, and that as a multiple of what the floor adds."""
    bare = next(subject for subject in compared if subject.name == "bare")
    above = [
        Subject(s.name, s.run, [mine - theirs for mine, theirs in zip(s.figures, bare.figures, strict=True)])
        for s in compared
        if s is not bare
    ]
    return rows(f"{case}: added", "us", above, lambda seconds: seconds * 1e6)


def run() -> list[Row]:
    """The benchmark, on asyncio's own loop, with asgi_operations and asgi_remembered."""
    from benchmarks import asgi_operations, asgi_remembered

    return [*asyncio.run(measured()), *asgi_operations.run(), *asgi_remembered.run()]
