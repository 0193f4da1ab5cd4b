"""asyncmy's two statements that the server knows by name, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncmy
import pytest
from asyncmy.constants.COMMAND import COM_STMT_CLOSE

from tests.servers.mariadb import MariadbServer
from tests.stores.mysql_kinds import Place, complete, new_place, won
from twicesafe.stores.asyncmy import AsyncmyStore

HINT = "…€0001"
"""No byte of latin1 stands for it."""


def executed(place: Place) -> int:
    """How many statements the server has performed by name."""
    with place.admin.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'")
        return int(cursor.fetchone()[1])


async def exchange(store: AsyncmyStore, key: str) -> None:
    """Claim, complete, and look what is there."""
    own = await won(store, key, key_hint=HINT)
    await complete(store, own)
    found = await store.read(own.digest)
    assert found.record is not None and found.record.response is not None
    assert (found.record.key_hint, found.record.ownership) == (HINT, own)


async def nothing(place: Place, pool: asyncmy.Pool, store: AsyncmyStore) -> None:
    """All is as it should be."""


async def forgotten(place: Place, pool: asyncmy.Pool, store: AsyncmyStore) -> None:
    """The server has closed what it had prepared."""
    async with pool.acquire() as connection:
        connections: Any = store._connections
        for prepared in connections._known[connection].prepared.values():
            await connection._execute_command(COM_STMT_CLOSE, prepared._statement_id.to_bytes(4, "little"))


async def reconnected(place: Place, pool: asyncmy.Pool, store: AsyncmyStore) -> None:
    """A handler has connected the connection anew."""
    async with pool.acquire() as connection:
        connection.close()
        await connection.connect()


@pytest.mark.parametrize(
    ("meanwhile", "charset", "by_name"),
    [
        pytest.param(nothing, "utf8mb4", 4, id="all is well"),
        pytest.param(reconnected, "utf8mb4", 4, id="connected anew"),
        pytest.param(forgotten, "utf8mb4", 2, id="forgotten"),
        pytest.param(nothing, "latin1", 0, id="another character set"),
    ],
)
def test_statements_are_performed_by_name_or_else_as_texts(
    mariadb_server: MariadbServer,
    meanwhile: Callable[[Place, asyncmy.Pool, AsyncmyStore], Awaitable[None]],
    charset: str,
    by_name: int,
) -> None:
    """I1, R10: claim and completion are performed by name where that can be; where the server has forgotten the names,
    or is another session, or letters have no bytes, the exchange is made all the same, with every letter kept."""
    place = new_place(mariadb_server, "asyncmy")

    async def trial() -> None:
        where = {"host": "127.0.0.1", "port": mariadb_server.port, "user": "twicesafe", "database": place.name}
        async with asyncmy.create_pool(minsize=1, maxsize=1, autocommit=True, charset=charset, **where) as pool:
            store = AsyncmyStore(pool)
            await store.apply_schema()
            before = executed(place)
            await exchange(store, "one")
            await meanwhile(place, pool, store)
            await exchange(store, "other")
            assert executed(place) - before == by_name
            await store.aclose()

    with place.admin:
        asyncio.run(trial())


def test_a_server_that_takes_no_more_names_gets_texts(mariadb_server: MariadbServer) -> None:
    """I1, R10: with every name of the server taken the exchange is made all the same."""
    place = new_place(mariadb_server, "asyncmy")
    most = place.value("SELECT @@GLOBAL.max_prepared_stmt_count")

    async def trial() -> None:
        store = place.store()
        await store.apply_schema()
        before = executed(place)
        for n in range(3):
            await exchange(store, f"key-{n}")
        assert executed(place) == before
        await store.aclose()

    with place.admin:
        place.value("SET GLOBAL max_prepared_stmt_count = 0")
        try:
            asyncio.run(trial())
        finally:
            place.value("SET GLOBAL max_prepared_stmt_count = %s", most)
