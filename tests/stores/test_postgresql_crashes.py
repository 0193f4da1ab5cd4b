"""PostgreSQL when servers, connections and callers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import asyncpg
import psycopg
import pytest

from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, wish
from tests.stores.postgresql_kinds import (
    ASYNC_KINDS,
    KIND,
    POOL_SIZE,
    Place,
    complete,
    new_place,
    whole,
    won,
)
from twicesafe.core.record import Effects, Ownership
from twicesafe.errors import (
    AmbiguousWriteError,
    StoreUnavailableError,
)
from twicesafe.stores.contract import AsyncStore

TRANSACTIONAL = Effects.TRANSACTIONAL

LOST_SESSION = (OSError, psycopg.OperationalError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""What the drivers tell a handler whose session is gone."""


@pytest.fixture(scope="module", name="crashing")
def crashing_server() -> Iterator[PostgresqlServer]:
    """A server that these tests crash; it keeps its promises of durability."""
    with PostgresqlServer(durable=True) as server:
        yield server


# --- servers that are lost -------------------------------------------------------------------------------------------


@KIND
def test_a_crash_of_the_server_leaves_all_or_nothing(crashing, kind) -> None:
    """R23, I11: after a crash what was completed is there, and of what was not there is neither effect nor record."""
    made = new_place(crashing, kind)

    async def trial() -> Ownership:
        async with made.opened() as store:
            await whole(made, store, "done")
            leased = await won(store, "leased")
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await made.write_in(transaction)
                await asyncio.to_thread(crashing.restart, "immediate")
                with pytest.raises(StoreUnavailableError):
                    await complete(transaction, own)
            made.reconnect()
            assert made.effects() == 0
            assert made.effects("done") == 1
            assert (await store.read(own.digest)).record is None
            found = await store.read(wish("done").digest)
            assert found.record is not None
            assert found.record.response == ANSWER
            found = await store.read(leased.digest)
            assert found.record is not None
            assert found.record.ownership == leased
            # The pool had connections to a server that is no more.
            for n in range(2 * POOL_SIZE):
                await whole(made, store, f"after-{n}")
            return own

    asyncio.run(trial())
    made.admin.close()


@KIND
def test_a_store_outlives_its_server(crashing, kind) -> None:
    """R23: without a server the store is unavailable, without a word of passwords; with one it is there again."""
    made = new_place(crashing, kind)

    async def trial() -> None:
        async with made.opened(timeout=timedelta(seconds=2)) as store:
            await whole(made, store, "before")
            await asyncio.to_thread(crashing.stop, "immediate")
            try:
                for call in (store.now, lambda: store.claim(wish()), lambda: store.read(bytes(32))):
                    with pytest.raises(StoreUnavailableError) as caught:
                        await call()
                    assert "secret" not in str(caught.value)
                async with store.transaction() as transaction:
                    with pytest.raises(StoreUnavailableError):
                        await transaction.claim(wish())
            finally:
                await asyncio.to_thread(crashing.start)
            made.reconnect()
            for _ in range(100):
                try:
                    await store.now()
                    break
                except StoreUnavailableError:
                    continue
            await whole(made, store, "after")

    asyncio.run(trial())
    made.admin.close()


@KIND
def test_a_pool_recovers_after_a_long_outage(crashing, kind, monkeypatch) -> None:
    """C8, K: however long the server was away, the pool asks for it again as soon as somebody asks the pool."""
    # What doubles with each failure is as long after two of them as it would be after hours.
    monkeypatch.setattr("psycopg_pool.base.AttemptWithBackoff.DELAY_BACKOFF", 10_000.0)
    made = new_place(crashing, kind)

    async def trial() -> None:
        async with made.opened(timeout=timedelta(seconds=1)) as store:
            await asyncio.gather(*(won(store, f"before-{n}") for n in range(POOL_SIZE)))
            await asyncio.to_thread(crashing.stop, "immediate")
            try:
                for n in range(3):
                    failed = await asyncio.gather(
                        *(store.claim(wish(f"in-vain-{n}-{m}")) for m in range(POOL_SIZE)), return_exceptions=True
                    )
                    assert {type(error) for error in failed} == {StoreUnavailableError}
            finally:
                await asyncio.to_thread(crashing.start)
            made.reconnect()
            for _ in range(3):
                with suppress(StoreUnavailableError):
                    await won(store, "after")
                    return
            raise AssertionError("it does not recover")

    asyncio.run(trial())
    made.admin.close()


@KIND
def test_connections_ended_by_an_administrator_are_replaced(place, kind) -> None:
    """R23, C8: sessions that the server ended, idle or in a transaction, cost their transaction and nothing else."""

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                await asyncio.to_thread(end_sessions, place)
                with pytest.raises(StoreUnavailableError):
                    await complete(transaction, own)
            assert place.effects() == 0
            for n in range(2 * POOL_SIZE):
                await whole(place, store, f"key-{n}")

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("ending", ["release", "hold"])
def test_a_handler_that_lost_its_session_is_rolled_back(place, kind, ending) -> None:
    """R16, R23: a handler that finds its session gone leaves nothing, the store says no more, and the key is free."""

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await asyncio.to_thread(end_sessions, place)
                with pytest.raises(LOST_SESSION):
                    await place.write_in(transaction)
                with suppress(StoreUnavailableError):
                    await getattr(transaction, ending)(own)
            assert place.effects() == 0
            await whole(place, store, "key")

    asyncio.run(trial())


def end_sessions(place: Place) -> None:
    """And wait until they are gone. A pool may have others by then."""
    others = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    found = [pid for (pid,) in place.admin.execute(others).fetchall()]
    ended = place.admin.execute("SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s::int[]) AS pid", [found])
    assert ended.fetchall() == [(True,)] * len(found)


# --- callers that are lost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_cancelling_anywhere_leaks_nothing(place, kind) -> None:
    """A1, C8: cancelled after any number of steps, an exchange leaves no transaction open, no connection taken, and
    never an effect without its record."""

    async def exchange(store: AsyncStore, key: str) -> None:
        async with store.transaction() as transaction:
            own = await won(transaction, key, effects=TRANSACTIONAL)
            await place.write_in(transaction, key)
            await complete(transaction, own)

    async def trial() -> None:
        async with place.opened() as store:
            await whole(place, store, "warm")
            steps = 0
            while True:
                key = f"key-{steps}"
                task = asyncio.ensure_future(exchange(store, key))
                for _ in range(steps):
                    if task.done():
                        break
                    await one_turn()
                if task.done():
                    break
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                found = await store.read(wish(key).digest)
                assert place.effects(key) == (0 if found.record is None else 1), key
                steps += 1
            assert steps > 5
            for n in range(2 * POOL_SIZE):
                await whole(place, store, f"after-{n}")
        assert await asyncio.to_thread(open_transactions, place) == 0

    asyncio.run(trial())


@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_cancelling_a_leased_call_leaks_nothing(place, kind) -> None:
    """A1, C8: the same for the leased way, reads included, which hold a lock while they look."""

    async def trial() -> None:
        async with place.opened() as store:
            own = await won(store, "warm")
            await complete(store, own)
            for call in (lambda: store.claim(wish("key")), lambda: store.read(own.digest), lambda: store.purge()):
                await call()
                for steps in range(30):
                    task = asyncio.ensure_future(call())
                    for _ in range(steps):
                        await one_turn()
                    task.cancel()
                    await asyncio.wait([task])
            for n in range(2 * POOL_SIZE):
                await whole(place, store, f"after-{n}")
        assert await asyncio.to_thread(open_transactions, place) == 0

    asyncio.run(trial())


async def one_turn() -> None:
    """One turn of the event loop, in which a socket that has something is read."""
    await asyncio.sleep(0)


def open_transactions(place: Place) -> int:
    """How many sessions are in a transaction and idle."""
    count: int = place.value("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'")
    return count


@KIND
def test_a_silent_server_is_hung_up_on(postgresql_server, place, kind) -> None:
    """C8, K: a statement that waits for somebody else's row for longer than the time-out ends, and changed nothing."""

    async def trial() -> None:
        async with place.opened(timeout=timedelta(seconds=1.5)) as store:
            own = await won(store)
            with psycopg.connect(place.dsn_with()) as somebody:
                somebody.execute("SELECT 1 FROM twicesafe_records FOR UPDATE")
                with pytest.raises((StoreUnavailableError, AmbiguousWriteError)):
                    await complete(store, own)
            await complete(store, own)

    asyncio.run(trial())
