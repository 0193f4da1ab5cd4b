"""The application of benchmarks.postgresql_scale, for uvicorn: BENCH_URL is the database, BENCH_WAY what it does.

Each way answers 201 after an effect of one row: `twicesafe` under its ASGI shell, claim, effect and answer in one
transaction; `by hand` with the same statements, and without looking at what it was asked; `effect alone` with nothing
but the effect, committed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from benchmarks.postgresql import ByHand, by_pool, effect_alone, no_reset, one_row
from benchmarks.statements import ANSWER, LINES
from twicesafe import Effects, Policy
from twicesafe.asgi import IdempotencyMiddleware, current
from twicesafe.stores.asyncpg import AsyncpgStore

CONNECTIONS = 32
URL = os.environ["BENCH_URL"]


async def answer(send: Any) -> None:
    """Of all ways."""
    await send({"type": "http.response.start", "status": 201, "headers": LINES})
    await send({"type": "http.response.body", "body": ANSWER})


def protected() -> Any:
    """`twicesafe`"""

    async def charge(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await one_row(current(scope).connection)
        await answer(send)

    store = AsyncpgStore(URL, pool_size=CONNECTIONS)
    return IdempotencyMiddleware(
        charge, store, scope=lambda scope: "user", policy=Policy(effects=Effects.TRANSACTIONAL)
    )


def pooled(way: Any) -> Any:
    """The others, on the driver's pool."""
    once: Callable[[], Awaitable[None]] | None = None
    beginning = asyncio.Lock()

    async def charge(scope: Any, receive: Any, send: Any) -> None:
        nonlocal once
        await receive()
        if once is None:
            async with beginning:
                if once is None:
                    pool = await asyncpg.create_pool(URL, min_size=1, max_size=CONNECTIONS, reset=no_reset)
                    once = by_pool(pool, way, one_row)
        await once()
        await answer(send)

    return charge


WAYS: dict[str, Callable[[], Any]] = {
    "twicesafe": protected,
    "by hand": lambda: pooled(ByHand()),
    "effect alone": lambda: pooled(effect_alone),
}

app: Any = WAYS[os.environ["BENCH_WAY"]]()
