"""MySQL when servers, connections and callers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.servers.mariadb import MariadbServer
from tests.stores.claims import ANSWER, wish
from tests.stores.mysql_kinds import KIND, POOL_SIZE, Place, complete, new_place, whole, won
from twicesafe.core.record import Effects
from twicesafe.errors import AmbiguousWriteError, StoreUnavailableError
from twicesafe.stores.contract import AsyncStore

TRANSACTIONAL = Effects.TRANSACTIONAL


@pytest.fixture(scope="module", name="crashing")
def crashing_server() -> Iterator[MariadbServer]:
    """A server that these tests crash; it keeps its promises of durability."""
    with MariadbServer(durable=True) as server:
        yield server


@KIND
def test_a_crash_of_the_server_leaves_all_or_nothing(crashing, kind) -> None:
    """R23, I11: after kill -9 what was completed is there, and of what was not there is neither effect nor record."""
    made = new_place(crashing, kind)

    async def trial() -> None:
        async with made.opened() as store:
            await whole(made, store, "done")
            leased = await won(store, "leased")
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await made.write_in(transaction)
                await asyncio.to_thread(crashing.restart, "crash")
                with pytest.raises(AmbiguousWriteError):
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

    asyncio.run(trial())
    made.admin.close()


@KIND
def test_a_store_outlives_its_server(crashing, kind) -> None:
    """R23, C8: without a server the store is unavailable, at once and in words; with one it is there again."""
    made = new_place(crashing, kind)

    async def trial() -> None:
        async with made.opened(timeout=timedelta(seconds=5)) as store:
            await asyncio.gather(*(won(store, f"before-{n}") for n in range(POOL_SIZE)))
            await asyncio.to_thread(crashing.stop, "crash")
            try:
                for call in (store.now, lambda: store.claim(wish()), lambda: store.read(bytes(32))):
                    with pytest.raises(StoreUnavailableError):
                        await call()
                async with store.transaction() as transaction:
                    with pytest.raises(StoreUnavailableError):
                        await transaction.claim(wish())
            finally:
                await asyncio.to_thread(crashing.start)
            made.reconnect()
            for n in range(POOL_SIZE):
                await whole(made, store, f"after-{n}")

    asyncio.run(trial())
    made.admin.close()


@KIND
def test_connections_ended_by_an_administrator_are_replaced(mysql_place, kind) -> None:
    """R23, C8: sessions that the server ended, idle or in a transaction, cost their transaction and nothing else."""

    async def trial() -> None:
        async with mysql_place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await mysql_place.write_in(transaction)
                await asyncio.to_thread(end_sessions, mysql_place)
                with pytest.raises(AmbiguousWriteError):
                    await complete(transaction, own)
            assert (await store.read(own.digest)).record is None
            assert mysql_place.effects() == 0
            for n in range(2 * POOL_SIZE):
                await whole(mysql_place, store, f"key-{n}")

    asyncio.run(trial())


@KIND
def test_a_statement_that_was_killed_changed_nothing(mysql_place, kind) -> None:
    """C8, K: a claim that waits for somebody else's row longer than the store's patience ends, and changed nothing."""

    async def trial() -> None:
        async with mysql_place.opened(timeout=timedelta(seconds=2)) as store:
            own = await won(store)
            with mysql_place.server.connect(mysql_place.name, autocommit=False) as somebody:
                with somebody.cursor() as cursor:
                    cursor.execute("SELECT 1 FROM twicesafe_records FOR UPDATE")
                with pytest.raises((StoreUnavailableError, AmbiguousWriteError)):
                    await complete(store, own)
                somebody.rollback()
            await complete(store, own)
            row = (await store.read(own.digest)).record
            assert row is not None
            assert row.response == ANSWER

    asyncio.run(trial())


@KIND
def test_a_handler_waits_as_long_as_the_server_says(mysql_place, kind) -> None:
    """C8: the store's impatience for locks is not its handlers': theirs is the server's setting, before and after."""

    async def trial() -> None:
        usual = mysql_place.value("SELECT @@GLOBAL.innodb_lock_wait_timeout")
        async with mysql_place.opened(pool_size=1) as store:
            for n in range(2):
                await won(store, f"leased-{n}")
                async with store.transaction() as transaction:
                    own = await won(transaction, f"key-{n}", effects=TRANSACTIONAL)
                    assert await mysql_place.sql_in(transaction, "SELECT @@innodb_lock_wait_timeout") == usual
                    await complete(transaction, own)

    asyncio.run(trial())


@pytest.mark.parametrize("kind", ["asyncmy"])
def test_cancelling_anywhere_leaks_nothing(mysql_place, kind) -> None:
    """A1, C8: cancelled after any number of steps, an exchange leaves no transaction open, no connection taken, and
    never an effect without its record."""

    async def exchange(store: AsyncStore, key: str) -> None:
        async with store.transaction() as transaction:
            own = await won(transaction, key, effects=TRANSACTIONAL)
            await mysql_place.write_in(transaction, key)
            await complete(transaction, own)

    async def trial() -> None:
        async with mysql_place.opened() as store:
            await whole(mysql_place, store, "warm")
            steps = 0
            while True:
                key = f"key-{steps}"
                task = asyncio.ensure_future(exchange(store, key))
                for _ in range(steps):
                    if task.done():
                        break
                    await asyncio.sleep(0)
                if task.done():
                    break
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                found = await store.read(wish(key).digest)
                assert mysql_place.effects(key) == (0 if found.record is None else 1), key
                steps += 1
            assert steps > 5
            for call in (lambda: store.claim(wish("leased")), lambda: store.read(wish("warm").digest), store.purge):
                for steps in range(12):
                    task = asyncio.ensure_future(call())
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
            for n in range(2 * POOL_SIZE):
                await whole(mysql_place, store, f"after-{n}")
        query = "SELECT count(*) FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p"
        assert mysql_place.value(f"{query} ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()") == 0

    asyncio.run(trial())


def end_sessions(place: Place) -> None:
    """All but one's own, and wait until they are gone."""
    others = "FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    with place.admin.cursor() as cursor:
        cursor.execute(f"SELECT id {others}")
        for (number,) in cursor.fetchall():
            cursor.execute(f"KILL {number}")
    while place.value(f"SELECT count(*) {others}"):
        pass
