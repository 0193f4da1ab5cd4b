"""MySQL's connections: pools, whose they are, how many are taken, and what travels on them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncmy
import pymysql
import pytest
from asyncmy.cursors import DictCursor

from tests.servers.cutting import CuttingProxy
from tests.servers.mariadb import MariadbServer
from tests.stores.claims import wish
from tests.stores.mysql_kinds import KIND, as_async, complete, new_place, whole, won
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import ConfigurationError, StoreUnavailableError
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.pymysql import PymysqlStore

TRANSACTIONAL = Effects.TRANSACTIONAL


def test_a_pool_of_your_own_stays_yours(mariadb_server: MariadbServer) -> None:
    """C8: whatever cursors and commit mode an asyncmy pool has, the store works on it, and leaves them alone."""
    made = new_place(mariadb_server, "asyncmy")

    async def trial() -> None:
        where = {"host": "127.0.0.1", "port": mariadb_server.port, "user": "twicesafe", "database": made.name}
        async with asyncmy.create_pool(minsize=1, maxsize=1, cursor_cls=DictCursor, autocommit=False, **where) as pool:
            store = AsyncmyStore(pool)
            await store.apply_schema()
            for n in range(3):
                await complete(store, await won(store, f"leased-{n}"))
                async with store.transaction() as transaction:
                    own = await won(transaction, f"key-{n}", effects=TRANSACTIONAL)
                    await transaction.connection.cursor().execute("INSERT INTO effects (name) VALUES ('key')")
                    await complete(transaction, own)
            await store.aclose()
            await store.aclose()
            assert made.effects() == 3
            async with pool.acquire() as connection:
                assert not connection.get_autocommit()
                cursor = connection.cursor()
                await cursor.execute("SELECT 1 AS one")
                assert await cursor.fetchone() == {"one": 1}
            assert (pool.freesize, pool.size) == (1, 1)

    with made.admin:
        asyncio.run(trial())


def test_connections_of_your_own_making_are_used(mariadb_server: MariadbServer) -> None:
    """C8, S: connections that take one statement at a time serve the store as well, and are kept to one at a time."""
    made = new_place(mariadb_server, "pymysql")
    connections = []

    def connect() -> pymysql.connections.Connection:
        connections.append(
            pymysql.connect(
                host="127.0.0.1", port=mariadb_server.port, user="twicesafe", database=made.name,
                cursorclass=pymysql.cursors.DictCursor,
            )
        )  # fmt: skip
        return connections[-1]

    async def trial() -> None:
        store = as_async(PymysqlStore(connect, pool_size=1))
        await store.apply_schema()
        for n in range(3):
            await whole(made, store, f"key-{n}")
            await complete(store, await won(store, f"leased-{n}"))
            found = await store.claim(wish(f"leased-{n}"))
            assert isinstance(found, Existing)
        async with store.transaction() as transaction:
            await won(transaction, effects=TRANSACTIONAL)
            with pytest.raises(pymysql.ProgrammingError):
                await made.sql_in(transaction, "DO 1; DO 2")
        await store.aclose()

    with made.admin:
        asyncio.run(trial())
    assert len(connections) == 1
    assert not connections[0].open


@KIND
def test_an_empty_pool_is_told_and_not_waited_for(mysql_place, kind) -> None:
    """C8: with every connection taken, the next caller is told within the time-out; those who have one go on."""

    async def trial() -> None:
        async with mysql_place.opened(pool_size=1, timeout=timedelta(seconds=1.5)) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                with pytest.raises(StoreUnavailableError, match="pool"):
                    await store.claim(wish("other"))
                await mysql_place.write_in(transaction)
                await complete(transaction, own)
            await whole(mysql_place, store, "other")
            assert mysql_place.effects() == 1

    asyncio.run(trial())


@KIND
def test_connections_are_given_in_the_order_of_asking(mysql_place, kind) -> None:
    """C8: whoever comes later waits until those who wait already have been served."""

    async def trial() -> None:
        plain = mysql_place.store(pool_size=1, timeout=timedelta(seconds=60))
        store = as_async(plain)
        await store.apply_schema()
        async with store.transaction() as transaction:
            await won(transaction, effects=TRANSACTIONAL)
            early = [asyncio.ensure_future(store.claim(wish(f"key-{n}"))) for n in range(3)]
            places = plain._connections
            queue = places._places._waiting if kind == "pymysql" else places._turns
            while len(queue if kind == "pymysql" else queue._waiters or ()) < len(early):
                await asyncio.wait(early, timeout=0.01)
        await store.now()
        assert all(one.done() for one in early)
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_waiting_for_a_key_holds_no_connection(mysql_place, kind) -> None:
    """C8: a claim that is refused has given its connection back, though its transaction was not left."""

    async def trial() -> None:
        async with mysql_place.opened(pool_size=2) as store, store.transaction() as first:
            own = await won(first, effects=TRANSACTIONAL)
            async with store.transaction() as waiting:
                found = await waiting.claim(wish(effects=TRANSACTIONAL))
                assert isinstance(found, Existing)
                assert found.verdict is Verdict.IN_PROGRESS
                await whole(mysql_place, store, "other")
                await complete(first, own)
                found = await waiting.claim(wish(effects=TRANSACTIONAL))
                assert isinstance(found, Existing)
                assert found.verdict is Verdict.REPLAY

    asyncio.run(trial())


@KIND
def test_an_exchange_takes_few_round_trips(mysql_place, kind) -> None:
    """R10: round trips are counted: a transaction takes one before and one behind its effect."""

    async def trial() -> None:
        async with (
            CuttingProxy(mysql_place.server.port) as proxy,
            mysql_place.opened(port=proxy.port, pool_size=1) as store,
            mysql_place.opened() as another,
        ):
            taken = {}
            for n in range(3):
                before = proxy.round_trips
                await whole(mysql_place, store, f"t-{n}")
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
            assert taken == {"transaction": 3, "claim": 1, "complete": 1, "replay": 1, "of another's": 2}

    asyncio.run(trial())


@pytest.mark.parametrize("store", [AsyncmyStore, PymysqlStore])
def test_what_is_no_setting_is_refused_where_it_is_made(store) -> None:
    """R42: a pool of nothing and a time-out of nothing are refused in words, not found out under load."""
    for wrong in ({"pool_size": 0}, {"timeout": timedelta(0)}):
        with pytest.raises(ConfigurationError):
            store("mysql://user@127.0.0.1:1/records", **wrong)
