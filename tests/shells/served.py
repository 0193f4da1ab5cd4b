"""The application that test_asgi_served.py runs under real servers. Where its files are comes by the environment."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

from twicesafe import PUBLIC, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.lookup import AsyncKeyLookup
from twicesafe.stores.sqlite import AsyncSqliteStore

FOLDER = Path(os.environ.get("TWICESAFE_TEST_FOLDER", "."))
LINES = (
    (b"content-type", b"application/octet-stream"),
    (b"set-cookie", b"a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT"),
    (b"set-cookie", b"b=2; Expires=Tue, 22 Oct 2030 07:28:00 GMT"),
    (b"link", b"</1>; rel=next"),
    (b"link", b"</2>; rel=last"),
    (b"content-disposition", b'attachment; filename="a, b.bin"'),
)
BODY = bytes(range(256)) * 4


async def opened(gate: str) -> None:
    """Until the test lets the handler go on."""
    while not (FOLDER / gate).exists():  # noqa: ASYNC110 - it is opened by another process
        await asyncio.sleep(0.01)


async def work(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """`POST /slow` waits after its effect, `POST /stream` between its chunks."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        more = message.get("more_body", False)
    connection = sqlite3.connect(FOLDER / "ledger.db", isolation_level=None)
    connection.execute("INSERT INTO ledger DEFAULT VALUES")
    connection.close()
    if scope["path"] == "/slow":
        await opened("gate")
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 201, "headers": []})
        for number, chunk in enumerate((b"one ", b"two ", b"three")):
            if number:
                await opened(f"gate{number}")
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    lines = [*LINES, (b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 201, "headers": lines})
    await send({"type": "http.response.body", "body": BODY})


store = AsyncSqliteStore(FOLDER / "records.db")
safe = IdempotencyMiddleware(work, store, scope=PUBLIC, policy=Policy(store_cookies=True))
lookup = AsyncKeyLookup(store, scope=PUBLIC, closes=True)


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """With its lifespan."""
    if scope["type"] != "lifespan":
        await (lookup if scope["path"] == "/keys" else safe)(scope, receive, send)
        return
    await receive()
    await store.apply_schema()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await store.aclose()
    await send({"type": "lifespan.shutdown.complete"})
