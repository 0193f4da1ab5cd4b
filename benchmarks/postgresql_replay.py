"""Replays on PostgreSQL by asyncpg, 32 tasks, beside a bare read by primary key.

The floor is an ASGI application that reads its body, fetches the row by its primary key over asyncpg's pool as it
comes, and answers with what is in it. `twicesafe` is the ASGI shell with a request that is done already: the key is
parsed, the body fingerprinted, the record compared, the answer played back. All have the same keys, of a table that
holds KEYS records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any

import asyncpg

from benchmarks.asgi import discard, fresh_key, request
from benchmarks.load import Once, throughput
from benchmarks.measure import Row, Subject, interleaved, rates
from benchmarks.statements import ANSWER, BODY, LINES
from twicesafe import Effects, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.packing import unpack_headers

TASKS = 32
ROUNDS = 9
TIMES = 3000
KEYS = 300
READ = "SELECT status, headers, body FROM twicesafe_records WHERE digest = $1"

App = Callable[[Any, Any, Any], Awaitable[None]]


def bare(pool: Any, digests: list[bytes]) -> App:
    """Answers from a row."""
    turn = cycle(digests)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        async with pool.acquire() as connection:
            row = await connection.fetchrow(READ, next(turn))
        lines = unpack_headers(row["headers"])
        await send({"type": "http.response.start", "status": row["status"], "headers": lines})
        await send({"type": "http.response.body", "body": row["body"]})

    return app


def protected(store: AsyncpgStore, effects: Effects) -> App:
    """The ASGI shell around an application that costs nothing."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": LINES})
        await send({"type": "http.response.body", "body": ANSWER})

    return IdempotencyMiddleware(app, store, scope=lambda scope: "user", policy=Policy(effects=effects))


def asked(app: App, keys: list[bytes]) -> Once:
    """One request under the next key."""
    turn = cycle(keys)

    async def once() -> None:
        scope, receive = request(next(turn), BODY)
        await app(scope, receive, discard)

    return once


async def no_reset(connection: Any) -> None:
    """As the store's own pool: what was begun was ended."""


async def measured(url: str) -> list[Row]:
    """Both ways."""
    found: list[Row] = []
    store = AsyncpgStore(url, pool_size=TASKS)
    pool = await asyncpg.create_pool(url, min_size=TASKS, max_size=TASKS)
    bare_pool = await asyncpg.create_pool(url, min_size=TASKS, max_size=TASKS, reset=no_reset)
    try:
        for effects in (Effects.KEYED, Effects.TRANSACTIONAL):
            app, keys = protected(store, effects), [fresh_key() for _ in range(KEYS)]
            await pool.execute("TRUNCATE twicesafe_records")
            fill = asked(app, keys)
            for _ in keys:
                await fill()
            await pool.execute("VACUUM ANALYZE twicesafe_records")
            digests = [row["digest"] for row in await pool.fetch("SELECT digest FROM twicesafe_records")]
            assert len(digests) == KEYS
            ways = {
                "floor": asked(bare(pool, digests), keys),
                "floor, no reset": asked(bare(bare_pool, digests), keys),
                "twicesafe": asked(app, keys),
            }
            subjects = [Subject(name, throughput(once, TASKS)) for name, once in ways.items()]
            await interleaved(subjects, rounds=ROUNDS, times=TIMES)
            found += rates(f"asyncpg, replay, {effects.value}, {TASKS} tasks", subjects)
            assert await pool.fetchval("SELECT count(*) FROM twicesafe_records") == KEYS
    finally:
        await pool.close()
        await bare_pool.close()
        await store.aclose()
    return found


def run(url: str) -> list[Row]:
    """Part of benchmarks.postgresql."""
    return asyncio.run(measured(url))
