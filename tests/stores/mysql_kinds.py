"""The two MySQL stores, on a database of their own in the tests' MariaDB, as AsyncStores all."""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import asyncmy
import pymysql
import pytest

from tests.servers.mariadb import MariadbServer
from tests.stores.claims import ANSWER, BODY, KEY, wish
from tests.stores.postgresql_kinds import as_async, interpose
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.record import Effects, Instant, Ownership
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.contract import AsyncSession, AsyncStore, AsyncTransaction
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.testing import ManualClock, StoreUnderTest
from twicesafe.testing.threads import TransactionInThread

MANUAL_CLOCK = "SELECT now FROM clock"
POOL_SIZE = 5
"""Fewer than any check has rivals (C8)."""

KINDS: dict[str, type[Any]] = {"asyncmy": AsyncmyStore, "pymysql": PymysqlStore}
KIND = pytest.mark.parametrize("kind", KINDS)


@dataclass
class Place:
    """A database of its own, with a table of effects and a clock, and a connection to look at them from outside."""

    server: MariadbServer
    admin: Any
    name: str
    kind: str
    pools: list[Any] = field(default_factory=list)
    """Of somebody else's, to be closed in the end."""
    shelf: list[str] | None = None
    """Where its name is put once it is empty again, for whoever comes next."""

    def store(self, *, port: int | None = None, session: dict[str, Any] | None = None, **options: Any) -> Any:
        """A store of the kind under test: on a URL, or with connections made with `session` by somebody else."""
        options = {"pool_size": POOL_SIZE, **options}
        make = KINDS[self.kind]
        if session is None:
            return make(self.server.dsn(self.name, port=port), **options)
        where: dict[str, Any] = {"host": "127.0.0.1", "port": port or self.server.port, "user": "twicesafe"}
        where |= {"database": self.name, **session}
        if self.kind == "asyncmy":
            self.pools.append(asyncmy.Pool(0, options.pop("pool_size"), **where))
            return make(self.pools[-1], **options)
        return make(lambda: pymysql.connect(**where), **options)

    def write(self, connection: Any, name: str) -> Any:
        """A row of the application's own."""
        return self.execute(connection, "INSERT INTO effects (name) VALUES (%s)", name)

    def execute(self, connection: Any, query: str, *parameters: Any) -> Any:
        """Run `query` as a handler would; its first value, if it has any. With asyncmy this is awaited."""
        cursor = connection.cursor()
        if self.kind == "asyncmy":
            return _aexecute(cursor, query, parameters)
        cursor.execute(query, parameters or None)
        return _first(cursor.fetchone()) if cursor.description else None

    def effects(self, name: str = "key") -> int:
        """How many of them are committed."""
        return cast("int", self.value("SELECT count(*) FROM effects WHERE name = %s", name))

    def value(self, query: str, *parameters: Any) -> Any:
        """One value, seen from outside."""
        with self.admin.cursor() as cursor:
            cursor.execute(query, parameters or None)
            return _first(cursor.fetchone())

    def leave(self) -> None:
        """Close it."""
        if self.shelf is not None:
            with self.admin.cursor() as cursor:
                cursor.execute("SHOW TABLES")
                for (table,) in cursor.fetchall():
                    if table != "twicesafe_schema":
                        cursor.execute(f"DELETE FROM {table}")
            self.shelf.append(self.name)
        self.admin.close()

    def reconnect(self) -> None:
        """After the server has been away."""
        self.admin._force_close()
        self.admin = self.server.connect(self.name)

    def set_clock(self, now: Instant) -> None:
        """What MANUAL_CLOCK says."""
        self.value("UPDATE clock SET now = %s", now)

    @asynccontextmanager
    async def opened(self, **options: Any) -> Any:
        """An AsyncStore with its tables, closed in the end."""
        store = as_async(self.store(**options))
        try:
            await store.apply_schema()
            yield store
        finally:
            await store.aclose()
            await self.close_pools()

    async def close_pools(self) -> None:
        """They are not the store's to close."""
        while self.pools:
            pool = self.pools.pop()
            pool.close()
            await pool.wait_closed()

    async def write_in(self, transaction: AsyncTransaction, name: str = "key") -> None:
        """The application's own row, in a transaction."""
        await self.sql_in(transaction, "INSERT INTO effects (name) VALUES (%s)", name)

    async def sql_in(self, transaction: AsyncTransaction, query: str, *parameters: Any) -> Any:
        """Run `query` as a handler would; its first value, if it has any."""
        if isinstance(transaction, TransactionInThread):
            return await transaction.run(self.execute, transaction.connection, query, *parameters)
        return await self.execute(transaction.connection, query, *parameters)

    def subject(self, clock: ManualClock, **options: Any) -> StoreUnderTest:
        """What the contract's checks want to know."""
        clock.watch(self.set_clock)
        store = self.store(now_sql=MANUAL_CLOCK, **options)

        async def close() -> None:
            await self.close_pools()
            self.leave()

        return StoreUnderTest(
            store=store,
            write_effect=self.write,
            count_effects=self.effects,
            elsewhere=lambda: self.store(
                now_sql=MANUAL_CLOCK, session={"init_command": "SET SESSION time_zone = '+12:45'"}
            ),
            before_statement=lambda call: interpose(store, call),
            close=close,
        )


def new_place(server: MariadbServer, kind: str) -> Place:
    """A new one."""
    name = server.create_database()
    admin = server.connect(name)
    with admin.cursor() as cursor:
        cursor.execute("CREATE TABLE effects (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255) NOT NULL)")
        # Without transactions, so that nobody who reads the time keeps it from being moved.
        cursor.execute("CREATE TABLE clock (now BIGINT NOT NULL) ENGINE = MEMORY")
        cursor.execute("INSERT INTO clock VALUES (0)")
    return Place(server, admin, name, kind)


_shelves: dict[tuple[int, str], list[str]] = defaultdict(list)


def emptied_place(server: MariadbServer, kind: str) -> Place:
    """One that stores of this kind had before, or a new one: tables cost a server more than most checks do."""
    shelf = _shelves[server.port, kind]
    if not shelf:
        place = new_place(server, kind)
        place.shelf = shelf
        return place
    name = shelf.pop()
    admin = server.connect(name)
    with admin.cursor() as cursor:
        cursor.execute("INSERT INTO clock VALUES (0)")
    return Place(server, admin, name, kind, shelf=shelf)


async def won(session: AsyncSession, key: str | Claim = "key", **changes: Any) -> Ownership:
    """Claim and win."""
    found = await session.claim(wish(key, **changes) if isinstance(key, str) else key)
    assert isinstance(found, Claimed), found
    return found.ownership


async def complete(session: AsyncSession, own: Ownership, **named: Any) -> None:
    """With the usual answer."""
    await session.complete(own, ANSWER, KEY, BODY, **named)


async def whole(place: Place, store: AsyncStore, key: str = "key") -> None:
    """A whole exchange on a key of its own."""
    async with store.transaction() as transaction:
        own = await won(transaction, key, effects=Effects.TRANSACTIONAL)
        await place.write_in(transaction, key)
        await complete(transaction, own)
    assert place.effects(key) == 1


async def _aexecute(cursor: Any, query: str, parameters: tuple[Any, ...]) -> Any:
    await cursor.execute(query, parameters or None)
    return _first(await cursor.fetchone()) if cursor.description else None


def _first(row: Any) -> Any:
    return None if row is None else row[0]
