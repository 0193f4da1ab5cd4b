"""A store that is closed while somebody still works on it: they come to their end, and leave nothing open."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.stores import mysql_kinds, postgresql_kinds
from tests.stores.postgresql_kinds import as_async, complete, won
from twicesafe.core.record import Effects

PATIENCE = timedelta(seconds=60)


async def closed_under_way(place: Any) -> None:
    """Close the store between a transaction's claim and its commit."""
    plain = place.store(timeout=PATIENCE)
    store = as_async(plain)
    await store.apply_schema()
    async with store.transaction() as transaction:
        own = await won(transaction, effects=Effects.TRANSACTIONAL)
        await place.write_in(transaction)
        if hasattr(plain, "aclose"):
            closing = asyncio.ensure_future(plain.aclose())
            await asyncio.sleep(0)
        else:
            # Not in the thread of the transaction.
            closing = asyncio.ensure_future(asyncio.to_thread(plain.close))
            await closing
        await complete(transaction, own)
    await closing
    assert place.effects() == 1
    assert (await store.read(own.digest)).record.owner == own.owner
    await store.aclose()


@postgresql_kinds.KIND
def test_postgresql_is_closed_under_a_transaction(place: postgresql_kinds.Place, kind: str) -> None:
    """R14: the effect and its answer are committed once, whoever has it is told nothing else, and closing ends."""
    asyncio.run(closed_under_way(place))


@mysql_kinds.KIND
def test_mysql_is_closed_under_a_transaction(mysql_place: mysql_kinds.Place, kind: str) -> None:
    """R14: the effect and its answer are committed once, whoever has it is told nothing else, and closing ends."""
    asyncio.run(closed_under_way(mysql_place))


@pytest.mark.parametrize("kind", postgresql_kinds.ASYNC_KINDS)
def test_postgresql_is_closed_however_long_a_transaction_takes(place: postgresql_kinds.Place, kind: str) -> None:
    """C8: closing waits no longer than the store's time-out, and what comes back later does no harm."""
    asyncio.run(outlasted(place))


@pytest.mark.parametrize("kind", ["asyncmy"])
def test_mysql_is_closed_however_long_a_transaction_takes(mysql_place: mysql_kinds.Place, kind: str) -> None:
    """C8: closing waits no longer than the store's time-out, and what comes back later does no harm."""
    asyncio.run(outlasted(mysql_place))


async def outlasted(place: Any) -> None:
    """Leave a transaction open until the store is closed."""
    async with place.opened():
        store = place.store(timeout=timedelta(seconds=3))
    async with store.transaction() as transaction:
        await won(transaction, effects=Effects.TRANSACTIONAL)
        await place.write_in(transaction)
        await store.aclose()
    assert place.effects() == 0
    await won(store)
    await store.aclose()
