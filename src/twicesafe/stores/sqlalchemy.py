"""Records beside your tables by way of SQLAlchemy 2: the handler's Session is the transaction, on PostgreSQL or SQLite.

Claim, the handler's ORM work and the answer are one transaction of one Session (or Connection), made by your own
factory on your own engine. With it come your pool, your events and your isolation level.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import sessionmaker
from sqlalchemy.util import await_only, greenlet_spawn

from twicesafe.core.record import Instant
from twicesafe.errors import ConfigurationError
from twicesafe.stores.joined import JoinedStore, JoinedTransaction, Turn
from twicesafe.stores.joined_async import AsyncJoinedStore, CarriedStore, CarriedTransaction
from twicesafe.stores.sqlalchemy_databases import (
    PLACEHOLDERS,
    SqliteKind,
    TasksTurn,
    on_postgresql,
    path_of,
    postgresql,
)
from twicesafe.stores.sqlalchemy_work import (
    ConnectionWork,
    Kind,
    SessionWork,
    SqlalchemyWork,
    guarded,
    guarded_sessions,
)
from twicesafe.stores.sqlite import DEFAULT_BUSY_TIMEOUT, AsyncSqliteStore, SqliteStore
from twicesafe.stores.sqlite_connection import SqliteFile, as_it_is, host_clock
from twicesafe.stores.steps import Rows, Statement

__all__ = ["AsyncSqlalchemyStore", "SqlalchemyStore"]

R = TypeVar("R")
Database: TypeAlias = "Engine | sessionmaker[Any]"
AsyncDatabase: TypeAlias = "AsyncEngine | async_sessionmaker[Any]"


class SqlalchemyStore(JoinedStore):
    """A Store in the database of your engine. Transactions are sessions of your `sessionmaker`, or its connections.

    Given a sessionmaker, whose `bind` is the engine, handlers get a Session; given an Engine, a Connection. Pool,
    time-outs, isolation level and, on SQLite, the durability of a transaction are the engine's. `now_sql` (PostgreSQL)
    and `clock` (SQLite) replace the store's clock; only tests have a reason to set them.
    """

    def __init__(
        self,
        database: Database,
        *,
        busy_timeout: timedelta = DEFAULT_BUSY_TIMEOUT,
        now_sql: str | None = None,
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        engine = _engine_of(database)
        if engine.dialect.name == "sqlite":
            path = path_of(engine)
            on_file = SqliteStore(path, busy_timeout=busy_timeout, clock=clock)
            file = SqliteFile(path, busy_timeout, clock, as_it_is)
            works = works_on(database, SqliteKind(file, Turn(file.busy_seconds)))
            super().__init__(lambda: on_file, lambda: JoinedTransaction(file.sql, works(), on_file.ask))
        else:
            leased, kind = postgresql(engine, now_sql)
            works = works_on(database, kind)
            super().__init__(lambda: leased, lambda: on_postgresql(leased, works()))


class AsyncSqlalchemyStore(AsyncJoinedStore):
    """An AsyncStore in the database of your AsyncEngine. Transactions are sessions of your `async_sessionmaker`.

    Given an async_sessionmaker, whose `bind` is the engine, handlers get an AsyncSession; given an AsyncEngine, an
    AsyncConnection. See SqlalchemyStore for the rest.
    """

    def __init__(
        self,
        database: AsyncDatabase,
        *,
        busy_timeout: timedelta = DEFAULT_BUSY_TIMEOUT,
        now_sql: str | None = None,
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        engine = _engine_of(database)
        if engine.dialect.name == "sqlite":
            path = path_of(engine)
            on_file = AsyncSqliteStore(path, busy_timeout=busy_timeout, clock=clock)
            file = SqliteFile(path, busy_timeout, clock, as_it_is)
            works = works_on(database, SqliteKind(file, TasksTurn(file.busy_seconds)))

            def ask(statement: Statement) -> Rows:
                return await_only(on_file.ask(statement))

            super().__init__(
                lambda: on_file,
                lambda: CarriedTransaction(JoinedTransaction(file.sql, works(), ask), _in_greenlet),
            )
        else:
            leased, kind = postgresql(engine, now_sql)
            works = works_on(database, kind)
            carried = CarriedStore(leased, _in_greenlet)
            super().__init__(
                lambda: carried,
                lambda: CarriedTransaction(on_postgresql(leased, works()), _in_greenlet),
            )


async def _in_greenlet(call: Callable[[], R]) -> R:
    """See Carry. A call that comes to its end without waiting may, so none is required to."""
    return await greenlet_spawn(call)


def _engine_of(database: Any) -> Engine:
    """The blocking engine behind it. ConfigurationError where it is of another kind, or not the whole database."""
    bind = database
    if isinstance(database, sessionmaker | async_sessionmaker):
        bind = database.kw.get("bind")
        if database.kw.get("twophase") or database.kw.get("binds"):
            raise ConfigurationError(
                "a session with twophase or binds spans several databases, and a transaction of twicesafe is one: give "
                "the store a sessionmaker of the database that holds the records, with bind=engine alone"
            )
    engine = bind.sync_engine if isinstance(bind, AsyncEngine) else bind
    if not isinstance(engine, Engine):
        raise ConfigurationError(
            f"a SQLAlchemy store needs an engine or a sessionmaker(bind=engine), not {type(bind).__name__}"
        )
    if engine.dialect.name not in ("postgresql", "sqlite"):
        raise ConfigurationError(f"a SQLAlchemy store works on PostgreSQL and SQLite, not on {engine.dialect.name}")
    if engine.dialect.paramstyle not in PLACEHOLDERS:
        raise ConfigurationError(
            f"the driver {engine.dialect.driver} is not one that twicesafe knows: use psycopg, asyncpg, pysqlite or "
            "aiosqlite"
        )
    return engine


def works_on(database: Any, kind: Kind) -> Callable[[], SqlalchemyWork]:
    """Makes transactions on what the store was given."""
    if hasattr(database, "kw"):
        return partial(SessionWork, guarded_sessions(database), kind)
    return partial(ConnectionWork, guarded(database), kind)
