"""Stores that join the application's own sessions: each kind on PostgreSQL, in a schema of its own, and on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.util import await_only

from tests.servers.postgresql import PostgresqlServer
from tests.stores import postgresql_kinds
from tests.stores.postgresql_kinds import MANUAL_CLOCK, POOL_SIZE, Place, _result, interpose
from twicesafe.stores.contract import AsyncTransaction
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore, SqlalchemyStore
from twicesafe.testing import ManualClock, StoreUnderTest
from twicesafe.testing.threads import TransactionInThread

EFFECT = text("INSERT INTO effects (name) VALUES (:name)")


class Owned(SqlalchemyStore):
    """A store that closes its engine with itself."""

    def __init__(self, database: Any, engine: Any, **options: Any) -> None:
        super().__init__(database, **options)
        self.engine = engine

    def close(self) -> None:
        super().close()
        self.engine.dispose()


class AsyncOwned(AsyncSqlalchemyStore):
    """The same, for asyncio."""

    def __init__(self, database: Any, engine: Any, **options: Any) -> None:
        super().__init__(database, **options)
        self.engine = engine

    async def aclose(self) -> None:
        await super().aclose()
        await self.engine.dispose()


def by_session(url: str, options: dict[str, Any], **engine: Any) -> Owned:
    """A blocking store over a sessionmaker."""
    made = create_engine(url, **engine)
    return Owned(sessionmaker(made), made, **options)


def by_connection(url: str, options: dict[str, Any], **engine: Any) -> Owned:
    """A blocking store over an engine."""
    made = create_engine(url, **engine)
    return Owned(made, made, **options)


def by_async_session(url: str, options: dict[str, Any], **engine: Any) -> AsyncOwned:
    """A store for asyncio over an async_sessionmaker."""
    made = create_async_engine(url, **engine)
    return AsyncOwned(async_sessionmaker(made), made, **options)


def by_async_connection(url: str, options: dict[str, Any], **engine: Any) -> AsyncOwned:
    """A store for asyncio over an AsyncEngine."""
    made = create_async_engine(url, **engine)
    return AsyncOwned(made, made, **options)


def write(connection: Any, name: str) -> None:
    """A row of the application's own."""
    connection.execute(EFFECT, {"name": name})


async def awrite(connection: Any, name: str) -> None:
    """The same, under asyncio."""
    await connection.execute(EFFECT, {"name": name})


@dataclass(frozen=True)
class Kind:
    """How stores of one kind are made."""

    driver: str
    make: Callable[..., Any]
    write: Callable[[Any, str], Any]
    handle: Any


ON_POSTGRESQL = {
    "SQLAlchemy, psycopg": Kind("psycopg", by_session, write, Session),
    "SQLAlchemy, asyncpg": Kind("asyncpg", by_async_session, awrite, AsyncSession),
    "SQLAlchemy, psycopg, async": Kind("psycopg", by_async_session, awrite, AsyncSession),
    "SQLAlchemy Core, psycopg": Kind("psycopg", by_connection, write, None),
    "SQLAlchemy Core, asyncpg": Kind("asyncpg", by_async_connection, awrite, None),
}
ON_SQLITE = {
    "SQLAlchemy, pysqlite": Kind("pysqlite", by_session, write, Session),
    "SQLAlchemy, aiosqlite": Kind("aiosqlite", by_async_session, awrite, AsyncSession),
    "SQLAlchemy Core, pysqlite": Kind("pysqlite", by_connection, write, None),
    "SQLAlchemy Core, aiosqlite": Kind("aiosqlite", by_async_connection, awrite, None),
}
JOINED = pytest.mark.parametrize("kind", ON_POSTGRESQL)


class JoinedPlace(Place):
    """A schema of its own, and stores that join sessions."""

    def store(self, *, port: int | None = None, settings: dict[str, str] | None = None, **options: Any) -> Any:
        """A store of the kind under test. `pool_size` and `engine` are the engine's."""
        kind = ON_POSTGRESQL[self.kind]
        settings = {"search_path": self.name, **(settings or {})}
        url = self.dsn.replace("postgresql://", f"postgresql+{kind.driver}://")
        if port is not None:
            url = url.replace(url.rpartition(":")[2].partition("/")[0], str(port))
        if kind.driver == "asyncpg":
            arguments: dict[str, Any] = {"server_settings": settings}
        else:
            words = [f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items()]
            arguments = {"options": " ".join(words)}
        arguments |= options.pop("connect", {})
        pool = {"pool_size": options.pop("pool_size", POOL_SIZE), "max_overflow": 0}
        return kind.make(url, options, connect_args=arguments, **pool, **options.pop("engine", {}))

    def write(self, connection: Any, name: str) -> Any:
        """A row of the application's own."""
        return ON_POSTGRESQL[self.kind].write(connection, name)

    async def sql_in(self, transaction: AsyncTransaction, query: str) -> Any:
        """Run `query` as a handler would; its first value, if it has any."""
        if isinstance(transaction, TransactionInThread):
            result = await transaction.run(transaction.connection.execute, text(query))
        else:
            result = await transaction.connection.execute(text(query))
        return result.scalar() if result.returns_rows else None

    def subject(self, clock: ManualClock, **options: Any) -> StoreUnderTest:
        """What the contract's checks want to know."""
        clock.watch(self.set_clock)
        store = self.store(now_sql=MANUAL_CLOCK, **options)
        return StoreUnderTest(
            store=store,
            write_effect=self.write,
            count_effects=self.effects,
            elsewhere=lambda: self.store(now_sql=MANUAL_CLOCK, settings={"TimeZone": "Pacific/Chatham"}),
            before_statement=lambda call: interpose_leased(store.leased, call),
            close=self.leave,
        )


def interpose_leased(leased: Any, call: Callable[[int], Any]) -> None:
    """Have `call(n)` called before the n-th statement of the leased way from now on."""
    if hasattr(leased, "perform"):
        interpose(leased, call)
    else:
        # Carried in greenlets: what is to be awaited is awaited there.
        interpose(leased.store, lambda n: await_only(_result(call(n))))


def new_place(server: PostgresqlServer, kind: str) -> JoinedPlace:
    """A new one."""
    made = postgresql_kinds.new_place(server, kind)
    return JoinedPlace(made.admin, made.name, made.dsn, made.kind)


def emptied_place(server: PostgresqlServer, kind: str) -> JoinedPlace:
    """See postgresql_kinds."""
    made = postgresql_kinds.emptied_place(server, kind)
    return JoinedPlace(made.admin, made.name, made.dsn, made.kind, made.shelf)


def on_file(path: Path, kind: str, clock: ManualClock, *, wal_at_connect: bool = False) -> StoreUnderTest:
    """A store of this kind on a SQLite file."""
    chosen = ON_SQLITE[kind]
    ledger = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    ledger.execute("CREATE TABLE effects (name TEXT NOT NULL)")

    def make() -> Any:
        return chosen.make(f"sqlite+{chosen.driver}:///{path}", {"clock": clock}, pool_size=POOL_SIZE, max_overflow=0)

    def effects(name: str) -> int:
        found: int = ledger.execute("SELECT count(*) FROM effects WHERE name = ?", (name,)).fetchone()[0]
        return found

    return StoreUnderTest(
        store=make(), write_effect=chosen.write, count_effects=effects, elsewhere=make, close=ledger.close
    )


_ = event
