"""The probe application as a bare ASGI callable."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from tests.behaviour.knobs import (
    CONTRACTS,
    EXPIRES,
    MAPPED,
    UNAUTHENTICATED,
    MappedError,
    Seen,
    append_async,
    append_on_async,
    configure,
    database,
    route_of,
    takes,
    user_of,
    work_async,
)
from twicesafe import Operation
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.sqlite import AsyncSqliteStore

COMMANDS = {
    "uvicorn": "uvicorn tests.behaviour.apps.asgi:app --host 127.0.0.1 --port {port} --log-level warning",
    "hypercorn": "hypercorn tests.behaviour.apps.asgi:app --bind 127.0.0.1:{port}",
    "granian": "granian tests.behaviour.apps.asgi:app --interface asgi --host 127.0.0.1 --port {port}",
}
NOT_OFFERED = {"cross-origin": "a bare callable has no layer for it"}

store = AsyncSqliteStore(database(), configure=configure)
OPERATIONS = {path: Operation(path, policy) for path, policy in CONTRACTS.items()}


class HttpError(Exception):
    """Turned into its status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


async def innermost(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The routes, and what errors are turned into."""
    route = route_of(scope["path"])
    if route is None or not takes(route, scope["method"]):
        await answer(send, 404 if route is None else 405, {})
        return
    pieces = []
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    seen = Seen(header(scope, b"probe"), scope["method"], scope["path"], scope["user"], b"".join(pieces))
    keyed = scope.get("twicesafe")
    append = partial(append_on_async, keyed.connection) if keyed and route == "/tx/jobs" else append_async
    try:
        reply = await work_async(seen, HttpError, keyed=keyed, append=append)
    except HttpError as error:
        await answer(send, error.status, {"how": "http"})
        return
    except MappedError:
        await answer(send, 409, MAPPED)
        return
    cookies = [f"{name}=1; Expires={EXPIRES:%a, %d %b %Y %H:%M:%S GMT}" for name in reply.cookies]
    lines = [*reply.lines, *[(b"set-cookie", line.encode()) for line in cookies]]
    if reply.stream:
        await send({"type": "http.response.start", "status": reply.status, "headers": lines})
        async for chunk in reply.chunks_async():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    else:
        if reply.status not in (204, 304):
            lines.append((b"content-length", b"%d" % len(reply.body)))
        await send({"type": "http.response.start", "status": reply.status, "headers": lines})
        await send({"type": "http.response.body", "body": reply.body})
    for task in reply.background:
        await asyncio.to_thread(task)


safe = IdempotencyMiddleware(
    innermost,
    store,
    scope=lambda scope: scope["user"],
    operation=lambda scope: OPERATIONS.get(route_of(scope["path"]) or ""),
)


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Start, end, and authentication."""
    if scope["type"] == "lifespan":
        await receive()
        await store.apply_schema()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await safe.drained()
        await store.aclose()
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["path"] == "/ready":
        await answer(send, 200, {})
    else:
        scope["user"] = user_of(header(scope, b"authorization"))
        if scope["user"] is None:
            await answer(send, 401, {}, tuple(part.encode() for part in UNAUTHENTICATED))
        else:
            await safe(scope, receive, send)


def header(scope: dict[str, Any], name: bytes) -> str | None:
    """A header line of the request."""
    return next((line.decode("latin-1") for found, line in scope["headers"] if found == name), None)


async def answer(send: Any, status: int, document: dict[str, str], *lines: tuple[bytes, bytes]) -> None:
    """A JSON document."""
    body = json.dumps(document).encode()
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *lines],
        }
    )
    await send({"type": "http.response.body", "body": body})
