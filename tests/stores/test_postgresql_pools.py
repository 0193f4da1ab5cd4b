"""PostgreSQL's connections: pools, whose they are, how many are taken, and what travels on them."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg_pool
import pytest
from psycopg.rows import dict_row

from tests.servers.cutting import CuttingProxy
from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import wish
from tests.stores.postgresql_kinds import (
    KIND,
    as_async,
    complete,
    new_place,
    whole,
    won,
)
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import (
    AmbiguousWriteError,
    StoreUnavailableError,
)
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.postgresql import store_error
from twicesafe.stores.psycopg import AsyncPsycopgStore, PsycopgStore
from twicesafe.stores.steps import Statement
from twicesafe.storm.frozen import freeze

TRANSACTIONAL = Effects.TRANSACTIONAL


# --- pools -----------------------------------------------------------------------------------------------------------


def test_a_pool_of_your_own_stays_yours_asyncpg(postgresql_server: PostgresqlServer) -> None:
    """C8: an asyncpg pool that was made elsewhere serves the store, and is left open and as it was."""
    made = new_place(postgresql_server, "asyncpg")

    async def trial() -> None:
        async with asyncpg.create_pool(made.dsn_with(), min_size=1, max_size=2) as pool:
            store = AsyncpgStore(pool)
            await store.apply_schema()
            for n in range(5):
                await whole(made, store, f"key-{n}")
            await won(store, "leased")
            await store.aclose()
            await store.aclose()
            assert await pool.fetchval("SELECT 1") == 1
            assert pool.get_idle_size() == pool.get_size()

    with made.admin:
        asyncio.run(trial())


def test_a_pool_of_your_own_stays_yours_psycopg(postgresql_server: PostgresqlServer) -> None:
    """C8: whatever row factory and commit mode a psycopg pool has, the store works on it, and leaves them alone."""
    made = new_place(postgresql_server, "psycopg")
    with psycopg_pool.ConnectionPool(
        made.dsn_with(), min_size=1, max_size=1, kwargs={"row_factory": dict_row}, open=True
    ) as pool:
        store = PsycopgStore(pool)
        store.apply_schema()

        async def trial() -> None:
            asynchronous = as_async(store)
            for n in range(3):
                await whole(made, asynchronous, f"key-{n}")
            await won(asynchronous, "leased")
            await asynchronous.aclose()

        asyncio.run(trial())
        with pool.connection() as connection:
            assert not connection.autocommit
            assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    made.admin.close()


def test_a_pool_of_your_own_stays_yours_psycopg_async(postgresql_server: PostgresqlServer) -> None:
    """C8: the same for an asynchronous psycopg pool."""
    made = new_place(postgresql_server, "psycopg, async")

    async def trial() -> None:
        async with psycopg_pool.AsyncConnectionPool(
            made.dsn_with(), min_size=1, max_size=1, kwargs={"row_factory": dict_row}, open=False
        ) as pool:
            store = AsyncPsycopgStore(pool)
            await store.apply_schema()
            for n in range(3):
                await whole(made, store, f"key-{n}")
            await won(store, "leased")
            await store.aclose()
            async with pool.connection() as connection:
                assert not connection.autocommit
                cursor = await connection.execute("SELECT 1 AS one")
                assert await cursor.fetchone() == {"one": 1}

    with made.admin:
        asyncio.run(trial())


@KIND
def test_an_empty_pool_is_told_and_not_waited_for(place, kind) -> None:
    """C8: with every connection taken, the next caller is told within the time-out; those who have one go on."""

    async def trial() -> None:
        async with place.opened(pool_size=1, timeout=timedelta(seconds=1.5)) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                with pytest.raises(StoreUnavailableError, match="pool"):
                    await store.claim(wish("other"))
                async with store.transaction() as other:
                    with pytest.raises(StoreUnavailableError, match="pool"):
                        await other.claim(wish("other"))
                await place.write_in(transaction)
                await complete(transaction, own)
            await whole(place, store, "other")
            assert place.effects() == 1

    asyncio.run(trial())


@KIND
def test_waiting_for_a_key_holds_no_connection(place, kind) -> None:
    """C8: a claim that is refused has given its connection back, though its transaction was not left."""

    async def trial() -> None:
        async with place.opened(pool_size=2) as store, store.transaction() as first:
            own = await won(first, effects=TRANSACTIONAL)
            async with store.transaction() as waiting:
                found = await waiting.claim(wish(effects=TRANSACTIONAL))
                assert isinstance(found, Existing)
                assert found.verdict is Verdict.IN_PROGRESS
                await whole(place, store, "other")
                await complete(first, own)
                found = await waiting.claim(wish(effects=TRANSACTIONAL))
                assert isinstance(found, Existing)
                assert found.verdict is Verdict.REPLAY

    asyncio.run(trial())


@KIND
def test_an_exchange_takes_few_round_trips(postgresql_server, place, kind) -> None:
    """R10: once statements are prepared, round trips are counted: the store adds as few as it promises."""
    expected = {
        # BEGIN with the lock, the look, the effect, the record, COMMIT.
        "asyncpg": {"transaction": 5, "claim": 1, "complete": 1, "replay": 1, "of another's": 2},
        # BEGIN with lock and look.
        "psycopg": {"transaction": 4, "claim": 1, "complete": 1, "replay": 1, "of another's": 2},
        "psycopg, async": {"transaction": 4, "claim": 1, "complete": 1, "replay": 1, "of another's": 2},
    }[kind]

    async def trial() -> None:
        async with (
            CuttingProxy(postgresql_server.port) as proxy,
            place.opened(port=proxy.port, pool_size=1) as store,
            place.opened() as another,
        ):
            taken = {}
            for n in range(8):
                before = proxy.round_trips
                await whole(place, store, f"t-{n}")
                taken["transaction"] = proxy.round_trips - before
                before = proxy.round_trips
                own = await won(store, f"l-{n}")
                taken["claim"] = proxy.round_trips - before
                before = proxy.round_trips
                await complete(store, own)
                taken["complete"] = proxy.round_trips - before
                before = proxy.round_trips
                await store.claim(wish(f"l-{n}"))
                taken["replay"] = proxy.round_trips - before
                await complete(another, await won(another, f"a-{n}"))
                before = proxy.round_trips
                await store.claim(wish(f"a-{n}"))
                taken["of another's"] = proxy.round_trips - before
            assert taken == expected

    asyncio.run(trial())


# --- silence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["asyncpg"])
def test_only_who_is_silent_for_too_long_is_hung_up_on(place) -> None:
    """C8, K: one timer looks after all statements: it ends those that take longer than the time-out and leaves the
    others alone, however many there are, and it is gone when nothing is asked any more."""

    async def trial_of(connections: Any, silent: Any, busy: Any) -> None:
        asked = [asyncio.create_task(connections.send(silent, (), answer(60)))]
        answered = 0
        async with asyncio.timeout(30):
            while not asked[0].done():
                assert await connections.send(busy, (), answer(0)) == [("",)]
                answered += 1
            with pytest.raises(LOST_CONNECTION) as caught:
                await asked[0]
            failure = connections.failure(caught.value)
            assert isinstance(store_error(failure, "here", doubtful=True), AmbiguousWriteError)
            assert answered > 10
            assert connections._asked == {}
            await connections.send(busy, (), answer(0))
            # It looks once more, finds nothing to look after, and does not come again.
            assert connections._watch is not None
            for _ in range(100):
                await asyncio.sleep(connections._timeout / 10)
                if connections._watch is None:
                    break
            assert connections._watch is None
            assert await connections.send(busy, (), answer(0)) == [("",)]
            assert connections._watch is not None

    async def trial() -> None:
        async with place.opened(timeout=timedelta(seconds=1.5)) as store:
            connections = store._connections
            silent, busy = await connections.acquire(), await connections.acquire()
            try:
                await trial_of(connections, silent, busy)
            finally:
                await connections.release(silent)
                await connections.release(busy)
            await whole(place, store)

    asyncio.run(trial())


@pytest.mark.parametrize("kind", ["asyncpg"])
def test_a_connection_that_says_nothing_does_not_hold_up_the_end(place) -> None:
    """C8: a store is closed within its time-out, also where the other end of a connection is there and says nothing."""

    async def trial() -> None:
        async with place.opened(timeout=timedelta(seconds=0.5)) as store:
            await whole(place, store)
            connection = await store._connections.acquire()
            pid = connection.get_server_pid()
            await store._connections.release(connection)
            freeze(pid)
            try:
                async with asyncio.timeout(30):
                    await store.aclose()
            finally:
                os.kill(pid, signal.SIGCONT)

    asyncio.run(trial())


LOST_CONNECTION = (asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError, OSError)


def answer(after: float) -> Statement:
    return Statement("answer", f"SELECT pg_sleep({after})::text", (), writes=False, returns=True)
