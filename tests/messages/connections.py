"""Connections of every kind that an application may have, each seen through the same few asynchronous calls.

Blocking ones live in a thread of their own each, so that a test can watch one of them wait.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

import aiosqlite
import asyncmy
import asyncpg
import psycopg
import pymysql
import sqlalchemy
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.stores.django_kinds import alias_of
from twicesafe.inbox import AsyncInbox, Inbox
from twicesafe.outbox import AsyncOutbox, Outbox

SOURCE = "/tests"
CONSUMER = "billing"


@dataclass
class Database:
    """A database with the tables, and a look at it from outside."""

    dialect: str
    where: str
    """A path, a DSN, or a name in the server that listens on `port`."""
    port: int = 0

    def ask(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What is committed. Parameters stand as %s."""
        if self.dialect == "sqlite":
            connection: Any = sqlite3.connect(self.where, isolation_level=None)
            query = query.replace("%s", "?")
        elif self.dialect == "postgresql":
            connection = psycopg.connect(self.where, autocommit=True)
        else:
            connection = pymysql.connect(**self.mysql(autocommit=True))
        try:
            cursor = connection.cursor()
            cursor.execute(query, parameters)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            connection.close()

    def mysql(self, **options: Any) -> dict[str, Any]:
        """How to connect to MySQL."""
        return {"host": "127.0.0.1", "port": self.port, "user": "twicesafe", "database": self.where, **options}

    def messages(self, aggregateid: str) -> list[str]:
        """The ids of an aggregate's committed messages, in their order."""
        rows = self.ask("SELECT id FROM twicesafe_outbox WHERE aggregateid = %s ORDER BY seq", aggregateid)
        return [row[0] for row in rows]

    def effects(self, name: str) -> int:
        """How often an effect is committed."""
        count: int = self.ask("SELECT count(*) FROM effects WHERE name = %s", name)[0][0]
        return count


@dataclass
class Opened:
    """One connection. Between `begin` and `commit` or `roll_back` it is in a transaction."""

    database: Database
    connection: Any
    execute_raw: Callable[..., Any]
    begin_raw: Callable[[], Any]
    commit_raw: Callable[[], Any]
    roll_back_raw: Callable[[], Any]
    close_raw: Callable[[], Any]
    thread: ThreadPoolExecutor | None = None
    """Where blocking calls go."""
    begun: bool = field(default=False)

    async def _do(self, call: Callable[[], Any]) -> Any:
        if self.thread is not None:
            return await asyncio.get_running_loop().run_in_executor(self.thread, call)
        result = call()
        return await result if isinstance(result, Awaitable) else result

    async def begin(self) -> None:
        """Begin a transaction."""
        await self._do(self.begin_raw)
        self.begun = True

    async def commit(self) -> None:
        """Commit it."""
        self.begun = False
        await self._do(self.commit_raw)

    async def roll_back(self) -> None:
        """Undo it."""
        self.begun = False
        await self._do(self.roll_back_raw)

    async def close(self) -> None:
        """Undo what is open, and close."""
        try:
            if self.begun:
                await self.roll_back()
        finally:
            await self._do(self.close_raw)
            if self.thread is not None:
                self.thread.shutdown(wait=False)

    async def execute(self, sql: str) -> None:
        """A statement of the application's own."""
        await self._do(partial(self.execute_raw, sql))

    async def write(self, name: str) -> None:
        """An effect."""
        await self.execute(f"INSERT INTO effects (name) VALUES ('{name}')")

    async def add(self, aggregateid: str, **more: Any) -> str:
        """Add a message of an order's; its id."""
        arguments = ("order.placed", ("order", aggregateid), more.pop("data", {"n": 1}))
        if self.thread is not None:
            outbox = Outbox(SOURCE)
            message = await self._do(partial(outbox.add, self.connection, *arguments, **more))
        else:
            message = await AsyncOutbox(SOURCE).add(self.connection, *arguments, **more)
        added: str = message.id
        return added

    async def inbox(self, method: str, *arguments: Any, consumer: str = CONSUMER) -> Any:
        """Call a method of the inbox."""
        if self.thread is not None:
            return await self._do(partial(getattr(Inbox(consumer), method), self.connection, *arguments))
        return await getattr(AsyncInbox(consumer), method)(self.connection, *arguments)


Opens: TypeAlias = Callable[[Database], Awaitable[Opened]]


async def in_thread(database: Database, connect: Callable[[], tuple[Any, ...]]) -> Opened:
    """A blocking connection, made in its own thread."""
    thread = ThreadPoolExecutor(1)
    made = await asyncio.get_running_loop().run_in_executor(thread, connect)
    return Opened(database, *made, thread=thread)


# --- SQLite ----------------------------------------------------------------------------------------------------------


async def open_sqlite3(database: Database, isolation: str | None = None) -> Opened:
    def connect() -> tuple[Any, ...]:
        made = sqlite3.connect(database.where, isolation_level=isolation, timeout=30)
        return made, made.execute, lambda: made.execute("BEGIN IMMEDIATE"), made.commit, made.rollback, made.close

    return await in_thread(database, connect)


async def open_aiosqlite(database: Database) -> Opened:
    made = await aiosqlite.connect(database.where, isolation_level=None, timeout=30)
    made.row_factory = sqlite3.Row
    begin = partial(made.execute, "BEGIN IMMEDIATE")
    return Opened(database, made, made.execute, begin, made.commit, made.rollback, made.close)


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


async def open_psycopg(database: Database, **options: Any) -> Opened:
    def connect() -> tuple[Any, ...]:
        made = psycopg.connect(database.where, row_factory=psycopg.rows.dict_row, **options)
        return made, made.execute, lambda: made.execute("SELECT 1"), made.commit, made.rollback, made.close

    return await in_thread(database, connect)


async def open_psycopg_async(database: Database) -> Opened:
    made = await psycopg.AsyncConnection.connect(database.where)
    return Opened(
        database, made, made.execute, partial(made.execute, "SELECT 1"), made.commit, made.rollback, made.close
    )


async def open_asyncpg(database: Database) -> Opened:
    made = await asyncpg.connect(database.where)
    begin, commit, roll_back = (partial(made.execute, word) for word in ("BEGIN", "COMMIT", "ROLLBACK"))
    return Opened(database, made, made.execute, begin, commit, roll_back, made.close)


# --- MySQL -----------------------------------------------------------------------------------------------------------


async def open_pymysql(database: Database, **options: Any) -> Opened:
    def connect() -> tuple[Any, ...]:
        made = pymysql.connect(**database.mysql(cursorclass=pymysql.cursors.DictCursor, **options))
        return made, lambda sql: made.cursor().execute(sql), made.begin, made.commit, made.rollback, made.close

    return await in_thread(database, connect)


async def open_asyncmy(database: Database, **options: Any) -> Opened:
    made = await asyncmy.connect(**database.mysql(**options))

    async def execute(sql: str) -> None:
        async with made.cursor() as cursor:
            await cursor.execute(sql)

    return Opened(database, made, execute, made.begin, made.commit, made.rollback, made.ensure_closed)


# --- SQLAlchemy ------------------------------------------------------------------------------------------------------


def url_of(database: Database, driver: str) -> str:
    """For SQLAlchemy."""
    if database.dialect == "sqlite":
        return f"sqlite+{driver}:///{database.where}"
    if database.dialect == "postgresql":
        parts = conninfo_to_dict(database.where)
        return f"postgresql+{driver}://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    return f"mysql+{driver}://twicesafe@127.0.0.1:{database.port}/{database.where}"


async def open_session(database: Database, driver: str) -> Opened:
    def connect() -> tuple[Any, ...]:
        engine = sqlalchemy.create_engine(url_of(database, driver))
        session = Session(engine)
        begin = partial(session.execute, sqlalchemy.text("SELECT 1"))
        return (
            session,
            lambda sql: session.execute(sqlalchemy.text(sql)),
            begin,
            session.commit,
            session.rollback,
            lambda: (session.close(), engine.dispose()),
        )

    return await in_thread(database, connect)


async def open_core(database: Database, driver: str, **options: Any) -> Opened:
    def connect() -> tuple[Any, ...]:
        engine = sqlalchemy.create_engine(url_of(database, driver), **options)
        made = engine.connect()
        return (
            made,
            made.exec_driver_sql,
            lambda: None,
            made.commit,
            made.rollback,
            lambda: (made.close(), engine.dispose()),
        )

    return await in_thread(database, connect)


async def open_async_session(database: Database, driver: str, **options: Any) -> Opened:
    engine = create_async_engine(url_of(database, driver), **options)
    session = AsyncSession(engine)

    async def execute(sql: str) -> None:
        await session.execute(sqlalchemy.text(sql))

    async def close() -> None:
        await session.close()
        await engine.dispose()

    return Opened(database, session, execute, partial(execute, "SELECT 1"), session.commit, session.rollback, close)


async def open_async_core(database: Database, driver: str) -> Opened:
    engine = create_async_engine(url_of(database, driver))
    made = await engine.connect()

    async def close() -> None:
        await made.close()
        await engine.dispose()

    return Opened(database, made, made.exec_driver_sql, lambda: None, made.commit, made.rollback, close)


# --- Django ----------------------------------------------------------------------------------------------------------


async def open_django(database: Database, *, by_alias: bool = False) -> Opened:
    if database.dialect == "sqlite":
        alias = alias_of("sqlite3", database.where, OPTIONS={"timeout": 30, "transaction_mode": "IMMEDIATE"})
    else:
        parts = conninfo_to_dict(database.where)
        alias = alias_of(
            "postgresql", str(parts["dbname"]), USER=parts["user"], HOST=parts["host"], PORT=str(parts["port"])
        )

    def connect() -> tuple[Any, ...]:
        wrapper = connections[alias]

        def execute(sql: str) -> None:
            with wrapper.cursor() as cursor:
                cursor.execute(sql)

        atomic = transaction.atomic(using=alias)

        def roll_back() -> None:
            atomic.__exit__(ValueError, ValueError("undone"), None)

        def close() -> None:
            wrapper.close()
            del connections[alias]
            del connections.settings[alias]

        shown = alias if by_alias else wrapper
        return shown, execute, atomic.__enter__, lambda: atomic.__exit__(None, None, None), roll_back, close

    return await in_thread(database, connect)


KINDS: dict[str, dict[str, Opens]] = {
    "sqlite": {
        "sqlite3": open_sqlite3,
        "aiosqlite": open_aiosqlite,
        "SQLAlchemy session": partial(open_session, driver="pysqlite"),
        "SQLAlchemy async session": partial(open_async_session, driver="aiosqlite"),
        "Django": open_django,
    },
    "postgresql": {
        "psycopg": open_psycopg,
        "psycopg, async": open_psycopg_async,
        "asyncpg": open_asyncpg,
        "SQLAlchemy session": partial(open_session, driver="psycopg"),
        "SQLAlchemy connection": partial(open_core, driver="psycopg"),
        "SQLAlchemy async session": partial(open_async_session, driver="asyncpg"),
        "SQLAlchemy async connection": partial(open_async_core, driver="asyncpg"),
        "Django": open_django,
        "Django, by its alias": partial(open_django, by_alias=True),
    },
    "mysql": {
        "PyMySQL": open_pymysql,
        "PyMySQL, counting what it finds": partial(open_pymysql, client_flag=pymysql.constants.CLIENT.FOUND_ROWS),
        "asyncmy": open_asyncmy,
        "SQLAlchemy session": partial(open_session, driver="pymysql"),
        "SQLAlchemy async session": partial(open_async_session, driver="asyncmy"),
    },
}

EACH = [(dialect, kind) for dialect, kinds in KINDS.items() for kind in kinds]
"""Every kind of connection on every dialect."""

ONE_OF_EACH = [("sqlite", "sqlite3"), ("postgresql", "psycopg"), ("postgresql", "asyncpg"), ("mysql", "PyMySQL")]
"""For what is the database's doing, not the driver's."""


@asynccontextmanager
async def opened(database: Database, kind: str) -> AsyncIterator[Opened]:
    """A connection, closed in the end."""
    made = await KINDS[database.dialect][kind](database)
    try:
        yield made
    finally:
        await made.close()


def new_id() -> str:
    """For an aggregate or a message that no other test has."""
    return str(uuid4())
