"""How often a request waits for PostgreSQL, counted on the wire once statements are prepared. Nothing is timed.

The floor of a first request is the same by hand, without asyncpg's clean-up of each connection; the floor of a replay
is a bare read by primary key.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import asyncpg

from benchmarks.asgi import fresh_key
from benchmarks.load import Once
from benchmarks.measure import Row, row
from tests.servers.cutting import CuttingProxy
from twicesafe import Effects, Policy
from twicesafe.stores.asyncpg import AsyncpgStore

PREPARING = 10
"""Requests until drivers send prepared statements only."""
LEDGER = "CREATE TABLE IF NOT EXISTS ledger (id bigserial PRIMARY KEY, account bigint, amount bigint)"
BY_HAND_LEASED = 2
"""A claim and an answer."""


async def counted(proxy: CuttingProxy, once: Once) -> int:
    """Of one request."""
    for _ in range(PREPARING):
        await once()
    before = proxy.round_trips
    await once()
    return proxy.round_trips - before


async def measured(url: str) -> list[Row]:
    """Of first requests and replays in the ASGI shell."""
    from benchmarks import postgresql, postgresql_replay

    address = urlsplit(url)
    assert address.port is not None
    async with CuttingProxy(address.port) as proxy:
        through = url.replace(f":{address.port}/", f":{proxy.port}/", 1)
        store, elsewhere = AsyncpgStore(through, pool_size=1), AsyncpgStore(url, pool_size=1)
        pool = await asyncpg.create_pool(through, min_size=1, max_size=1, reset=postgresql.no_reset)
        try:
            await store.apply_schema()
            await pool.execute(LEDGER)
            by_hand = await counted(proxy, postgresql.by_pool(pool, postgresql.ByHand(), postgresql.one_row))
            digests = [found["digest"] for found in await pool.fetch("SELECT digest FROM twicesafe_records LIMIT 1")]
            reading = await counted(proxy, postgresql_replay.asked(postgresql_replay.bare(pool, digests), [b"a-key"]))
            policy = Policy(effects=Effects.TRANSACTIONAL)
            leased = postgresql_replay.protected(store, Effects.KEYED)
            taken = [
                await counted(proxy, postgresql.by_shell(store, postgresql.one_row, policy)),
                await counted(proxy, postgresql_replay.asked(leased, [fresh_key() for _ in range(PREPARING + 1)])),
            ]
            for effects in (Effects.TRANSACTIONAL, Effects.KEYED):
                app = postgresql_replay.protected(store, effects)
                taken.append(await counted(proxy, postgresql_replay.asked(app, [fresh_key()])))
                keys = [fresh_key() for _ in range(PREPARING + 1)]
                there = postgresql_replay.asked(postgresql_replay.protected(elsewhere, effects), keys)
                for _ in keys:
                    await there()
                taken.append(await counted(proxy, postgresql_replay.asked(app, keys)))
        finally:
            await pool.close()
            await store.aclose()
            await elsewhere.aclose()
    cases = (
        ("transactional, one-row effect", by_hand), ("leased", BY_HAND_LEASED),
        ("replay, transactional", reading), ("replay of another process's, transactional", reading),
        ("replay, keyed", reading), ("replay of another process's, keyed", reading),
    )  # fmt: skip
    found: list[Row] = []
    for (case, floor), count in zip(cases, taken, strict=True):
        for subject, number in (("floor", floor), ("twicesafe", count)):
            found.append(row(f"asyncpg, {case}: waits", subject, "round trips", [number], number / floor))
    return found


def run(url: str) -> list[Row]:
    """Part of benchmarks.postgresql."""
    return asyncio.run(measured(url))
