"""An answer in pieces that is held back until it is recorded, and a framework that listens for its client meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.responses import StreamingResponse

from twicesafe.asgi import PUBLIC, IdempotencyMiddleware
from twicesafe.core.policy import Policy
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore


async def app(scope, receive, send):
    async def pieces():
        for _ in range(3):
            yield b"piece"

    # Starlette ends what it streams as soon as it is told that the client is gone.
    await StreamingResponse(pieces(), 201, {"content-length": "15"})(scope, receive, send)


async def ask(safe):
    """What a server gets of one request, whose line is so slow that others run between two pieces."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)
        for _ in range(3):
            await asyncio.sleep(0)

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "POST", "path": "/",
        "raw_path": b"/", "query_string": b"", "headers": [(b"idempotency-key", b"a-key")],
    }  # fmt: skip
    await safe(scope, receive, send)
    start, *bodies = sent
    return start["status"], b"".join(message.get("body", b"") for message in bodies), bodies[-1].get("more_body", False)


@pytest.mark.parametrize("effects", ["opaque", "transactional"])
def test_the_application_is_told_of_no_hang_up_before_its_answer_has_left(tmp_path, effects):
    """R14, H1, D5: the first caller gets all of a recorded answer, though the exchange is over before it."""

    async def trial():
        store, engine = AsyncMemoryStore(), create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
        if effects == "transactional":
            store = AsyncSqlalchemyStore(engine)
            await store.apply_schema()
        safe = IdempotencyMiddleware(app, store, scope=PUBLIC, policy=Policy(effects=effects))
        assert await ask(safe) == (201, b"piece" * 3, False)
        assert await ask(safe) == (201, b"piece" * 3, False)
        await store.aclose()
        await engine.dispose()

    asyncio.run(trial())
