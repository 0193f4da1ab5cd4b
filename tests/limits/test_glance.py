"""A look that waits for nobody: what limits ask a store before they refuse a key."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.core.records import ANSWER, MINE, SECOND
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer
from tests.stores.django_kinds import alias_of
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.record import Effects, RecordState
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.django import AsyncDjangoStore, DjangoStore
from twicesafe.stores.psycopg import PsycopgStore
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.sealed import SealedStore
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore, SqlalchemyStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore


def wish(number: int, effects: Effects = Effects.OPAQUE) -> Claim:
    """A claim of its own digest."""
    digest = number.to_bytes(32, "big")
    return Claim(digest, "user", "charge", "…", MINE, effects, bytes(15) + bytes([number]), 30 * SECOND, 3600 * SECOND)


async def ask(store: Any, method: str, *arguments: Any, **named: Any) -> Any:
    """Whichever kind it is."""
    if hasattr(store, "aclose"):
        return await getattr(store, method)(*arguments, **named)
    return await asyncio.to_thread(getattr(store, method), *arguments, **named)


async def looked_at(store: Any) -> None:
    """Nothing, a claim, and an answer, as they are; the clock is the store's."""
    await ask(store, "apply_schema")
    nothing = await ask(store, "glance", wish(1).digest)
    assert nothing.record is None and abs(nothing.now - await ask(store, "now")) < 60 * SECOND
    won = await ask(store, "claim", wish(1))
    assert type(won) is Claimed
    found = await ask(store, "glance", wish(1).digest)
    assert (found.record.state, found.record.ownership) == (RecordState.CLAIMED, won.ownership)
    await ask(store, "complete", won.ownership, ANSWER, 60 * SECOND, 60 * SECOND)
    assert (await ask(store, "glance", wish(1).digest)).record.state is RecordState.COMPLETED
    await ask(store, "aclose" if hasattr(store, "aclose") else "close")


def address(server: MariadbServer) -> str:
    """Of a new database."""
    return f"mysql://twicesafe@127.0.0.1:{server.port}/{server.create_database()}"


def sqlalchemy_engine(url: str, *, asynchronous: bool = False) -> Any:
    import sqlalchemy
    from sqlalchemy.ext.asyncio import create_async_engine

    return create_async_engine(url) if asynchronous else sqlalchemy.create_engine(url)


FILES = {
    "sqlite": SqliteStore,
    "sqlite, asyncio": AsyncSqliteStore,
    "sealed": lambda path: SealedStore(SqliteStore(path), keys=Keyring({"k": Keyring.new_key()}, "k")),
    "SQLAlchemy": lambda path: SqlalchemyStore(sqlalchemy_engine(f"sqlite:///{path}")),
    "SQLAlchemy, asyncio": lambda path: AsyncSqlalchemyStore(
        sqlalchemy_engine(f"sqlite+aiosqlite:///{path}", asynchronous=True)
    ),
    "Django": lambda path: DjangoStore(alias_of("sqlite3", str(path))),
    "Django, asyncio": lambda path: AsyncDjangoStore(alias_of("sqlite3", str(path))),
}


@pytest.mark.parametrize("kind", FILES)
def test_on_a_file(kind: str, tmp_path: Path) -> None:
    """R10: a look tells of what is recorded, by the store's clock."""
    asyncio.run(looked_at(FILES[kind](tmp_path / "records.db")))


@pytest.mark.parametrize("kind", [PsycopgStore, AsyncpgStore])
def test_on_postgresql(kind: Any, postgresql_server: PostgresqlServer) -> None:
    """R10: the same on PostgreSQL."""
    asyncio.run(looked_at(kind(postgresql_server.create_database())))


@pytest.mark.parametrize("kind", [PymysqlStore, AsyncmyStore])
def test_on_mysql(kind: Any, mariadb_server: MariadbServer) -> None:
    """R10: the same on MariaDB."""
    asyncio.run(looked_at(kind(address(mariadb_server))))


@pytest.mark.parametrize("place", ["postgresql", "mysql", "sqlite"])
def test_it_waits_for_nobody(
    place: str, tmp_path: Path, postgresql_server: PostgresqlServer, mariadb_server: MariadbServer
) -> None:
    """R11: while a transaction with the key is in flight a look comes back, and says that nothing is recorded."""
    store: Any = {
        "postgresql": lambda: PsycopgStore(postgresql_server.create_database()),
        "mysql": lambda: PymysqlStore(address(mariadb_server)),
        "sqlite": lambda: SqliteStore(tmp_path / "records.db"),
    }[place]()
    store.apply_schema()
    with store.transaction() as transaction:
        assert type(transaction.claim(wish(1, Effects.TRANSACTIONAL))) is Claimed
        found: list[Any] = []
        looking = threading.Thread(target=lambda: found.append(store.glance(wish(1).digest)), daemon=True)
        looking.start()
        looking.join(60)
        assert [one.record for one in found] == [None]
    store.close()
