"""What a handler gets as its transaction's connection is one that messages can be written on, for every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from tests.messages.conftest import Databases
from tests.messages.connections import SOURCE, Database, new_id, url_of
from tests.stores.claims import ANSWER, BODY, KEY, wish
from tests.stores.django_kinds import AsyncOwned, Owned, alias_of
from tests.stores.postgresql_kinds import as_async
from twicesafe.core.claims import Claimed
from twicesafe.errors import ConfigurationError
from twicesafe.inbox import AsyncInbox, Inbox, Received
from twicesafe.outbox import AsyncOutbox, Outbox
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.memory import MemoryStore
from twicesafe.stores.psycopg import AsyncPsycopgStore, PsycopgStore
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore, SqlalchemyStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing.threads import TransactionInThread


def mysql_url(database: Database) -> str:
    return f"mysql://twicesafe@127.0.0.1:{database.port}/{database.where}"


def alias(database: Database) -> str:
    if database.dialect == "sqlite":
        return alias_of("sqlite3", database.where)
    parts = conninfo_to_dict(database.where)
    return alias_of(
        "postgresql",
        str(parts["dbname"]),
        USER=parts["user"],
        HOST=parts["host"],
        PORT=str(parts["port"]),
        OPTIONS={"pool": {"min_size": 0, "max_size": 2}},
    )


def engine(database: Database, driver: str) -> Any:
    return sqlalchemy.create_engine(url_of(database, driver), poolclass=sqlalchemy.NullPool)


def async_engine(database: Database, driver: str) -> Any:
    return create_async_engine(url_of(database, driver), poolclass=sqlalchemy.NullPool)


STORES: dict[str, tuple[str, Callable[[Database], Any]]] = {
    "SqliteStore": ("sqlite", lambda database: SqliteStore(database.where)),
    "AsyncSqliteStore": ("sqlite", lambda database: AsyncSqliteStore(database.where)),
    "SqlalchemyStore, sqlite": ("sqlite", lambda database: SqlalchemyStore(sessionmaker(engine(database, "pysqlite")))),
    "AsyncSqlalchemyStore, sqlite": (
        "sqlite",
        lambda database: AsyncSqlalchemyStore(async_sessionmaker(async_engine(database, "aiosqlite"))),
    ),
    "DjangoStore, sqlite": ("sqlite", lambda database: Owned(alias(database))),
    "AsyncDjangoStore, sqlite": ("sqlite", lambda database: AsyncOwned(alias(database))),
    "PsycopgStore": ("postgresql", lambda database: PsycopgStore(database.where)),
    "AsyncPsycopgStore": ("postgresql", lambda database: AsyncPsycopgStore(database.where)),
    "AsyncpgStore": ("postgresql", lambda database: AsyncpgStore(database.where)),
    "SqlalchemyStore": ("postgresql", lambda database: SqlalchemyStore(sessionmaker(engine(database, "psycopg")))),
    "SqlalchemyStore, engine": ("postgresql", lambda database: SqlalchemyStore(engine(database, "psycopg"))),
    "AsyncSqlalchemyStore": (
        "postgresql",
        lambda database: AsyncSqlalchemyStore(async_sessionmaker(async_engine(database, "asyncpg"))),
    ),
    "AsyncSqlalchemyStore, engine": (
        "postgresql",
        lambda database: AsyncSqlalchemyStore(async_engine(database, "psycopg")),
    ),
    "DjangoStore": ("postgresql", lambda database: Owned(alias(database))),
    "AsyncDjangoStore": ("postgresql", lambda database: AsyncOwned(alias(database))),
    "PymysqlStore": ("mysql", lambda database: PymysqlStore(mysql_url(database))),
    "AsyncmyStore": ("mysql", lambda database: AsyncmyStore(mysql_url(database))),
}


async def call(transaction: Any, method: str, *arguments: Any) -> Any:
    """Add a message, or ask whether one is to be handled, as a handler would."""
    blocking, waiting = (Outbox, AsyncOutbox) if method == "add" else (Inbox, AsyncInbox)
    if isinstance(transaction, TransactionInThread):
        return await transaction.run(partial(getattr(blocking(SOURCE), method), transaction.connection, *arguments))
    return await getattr(waiting(SOURCE), method)(transaction.connection, *arguments)


@pytest.mark.parametrize("kind", STORES)
def test_a_handler_can_add_messages(databases: Databases, kind: str) -> None:
    """I9, R28, R29: on every store's connection a message is committed with the answer, and gone with a rollback."""
    dialect, make = STORES[kind]
    database, aggregate = databases(dialect), new_id()
    message = ("order.placed", ("order", aggregate), {"n": 1})
    received = Received(new_id(), SOURCE)

    async def trial() -> None:
        store = as_async(make(database))
        claim = wish(key=aggregate)
        async with store.transaction() as transaction:
            assert isinstance(await transaction.claim(claim), Claimed)
            await call(transaction, "add", *message)
            assert await call(transaction, "once", received)
        assert database.messages(aggregate) == []
        async with store.transaction() as transaction:
            won = await transaction.claim(claim)
            assert isinstance(won, Claimed)
            added = await call(transaction, "add", *message)
            assert await call(transaction, "once", received)
            assert not await call(transaction, "once", received)
            assert database.messages(aggregate) == []
            await transaction.complete(won.ownership, ANSWER, KEY, BODY)
        assert database.messages(aggregate) == [added.id]
        async with store.transaction() as transaction:
            await transaction.begin()
            assert not await call(transaction, "once", received)
        await store.aclose()

    asyncio.run(trial())


def test_stores_without_sql_have_no_outbox() -> None:
    """R28: what a store of another kind hands to its handlers is refused by name."""
    store = MemoryStore()
    with pytest.raises(ConfigurationError, match="no connection"):
        Outbox(SOURCE).add(store, "order.placed", ("order", "o-1"), b"{}")
