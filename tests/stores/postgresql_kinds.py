"""The three PostgreSQL stores, on a schema of their own in the tests' server, as AsyncStores all."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, cast
from urllib.parse import quote

import psycopg
import pytest

from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.record import Effects, Instant, Ownership
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.contract import AsyncSession, AsyncStore, AsyncTransaction, Store
from twicesafe.stores.psycopg import AsyncPsycopgStore, PsycopgStore
from twicesafe.testing import ManualClock, StoreUnderTest
from twicesafe.testing.threads import StoreInThreads, TransactionInThread

MANUAL_CLOCK = "SELECT now FROM clock"
POOL_SIZE = 5
"""Fewer than any check has rivals (C8)."""


async def _write_asyncpg(connection: Any, name: str) -> None:
    await connection.execute("INSERT INTO effects (name) VALUES ($1)", name)


def _write_psycopg(connection: Any, name: str) -> None:
    connection.execute("INSERT INTO effects (name) VALUES (%s)", [name])


async def _write_psycopg_async(connection: Any, name: str) -> None:
    await connection.execute("INSERT INTO effects (name) VALUES (%s)", [name])


KINDS: dict[str, tuple[Callable[..., Any], Callable[[Any, str], Any]]] = {
    "asyncpg": (AsyncpgStore, _write_asyncpg),
    "psycopg": (PsycopgStore, _write_psycopg),
    "psycopg, async": (AsyncPsycopgStore, _write_psycopg_async),
}
KIND = pytest.mark.parametrize("kind", KINDS)
ASYNC_KINDS = ["asyncpg", "psycopg, async"]


@dataclass
class Place:
    """A schema of its own, with a table of effects and a clock, and a connection to look at them from outside."""

    admin: psycopg.Connection[Any]
    name: str
    dsn: str
    kind: str
    shelf: list[str] | None = None
    """Where its name is put once it is empty again, for whoever comes next."""

    def dsn_with(self, *, port: int | None = None, **settings: str) -> str:
        """The DSN of this place, with session settings, and by way of a proxy's port where one is given."""
        settings = {"search_path": self.name, **settings}
        options = quote(" ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items()))
        dsn = self.dsn
        if port is not None:
            dsn = dsn.replace(f":{psycopg.conninfo.conninfo_to_dict(dsn)['port']}/", f":{port}/")
        return f"{dsn}?options={options}"

    def store(self, *, port: int | None = None, settings: dict[str, str] | None = None, **options: Any) -> Any:
        """A store of the kind under test."""
        options = {"pool_size": POOL_SIZE, **options}
        return KINDS[self.kind][0](self.dsn_with(port=port, **(settings or {})), **options)

    def write(self, connection: Any, name: str) -> Any:
        """A row of the application's own."""
        return KINDS[self.kind][1](connection, name)

    def effects(self, name: str = "key") -> int:
        """How many of them are committed."""
        return cast("int", self.value("SELECT count(*) FROM effects WHERE name = %s", name))

    def value(self, query: str, *parameters: Any) -> Any:
        """One value, seen from outside."""
        row = self.admin.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def leave(self) -> None:
        """Close it."""
        if self.shelf is not None:
            self.admin.execute(EMPTY)
            self.shelf.append(self.name)
        self.admin.close()

    def reconnect(self) -> None:
        """After the server has been away."""
        self.admin.close()
        self.admin = psycopg.connect(self.dsn_with(), autocommit=True)

    def set_clock(self, now: Instant) -> None:
        """What MANUAL_CLOCK says."""
        self.admin.execute("UPDATE clock SET now = %s", [now])

    @asynccontextmanager
    async def opened(self, **options: Any) -> Any:
        """An AsyncStore with its tables, closed in the end."""
        store = as_async(self.store(**options))
        try:
            await store.apply_schema()
            yield store
        finally:
            await store.aclose()

    async def write_in(self, transaction: AsyncTransaction, name: str = "key") -> None:
        """The application's own row, in a transaction."""
        if isinstance(transaction, TransactionInThread):
            await transaction.run(self.write, transaction.connection, name)
        else:
            await self.write(transaction.connection, name)

    async def sql_in(self, transaction: AsyncTransaction, query: str) -> Any:
        """Run `query` as a handler would; its first value, if it has any."""
        connection = transaction.connection
        if self.kind == "asyncpg":
            return await connection.fetchval(query)
        if self.kind == "psycopg":
            assert isinstance(transaction, TransactionInThread)
            cursor = await transaction.run(connection.execute, query)
            row = cursor.fetchone() if cursor.description else None
        else:
            cursor = await connection.execute(query)
            row = await cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]

    def subject(self, clock: ManualClock, **options: Any) -> StoreUnderTest:
        """What the contract's checks want to know."""
        clock.watch(self.set_clock)
        store = self.store(now_sql=MANUAL_CLOCK, **options)
        return StoreUnderTest(
            store=store,
            write_effect=self.write,
            count_effects=self.effects,
            elsewhere=lambda: self.store(now_sql=MANUAL_CLOCK, settings={"TimeZone": "Pacific/Chatham"}),
            before_statement=lambda call: interpose(store, call),
            close=self.leave,
        )


_names = count(1)
_shelves: dict[tuple[int, str], list[str]] = defaultdict(list)

EMPTY = """
DO $$ DECLARE name regclass; BEGIN
    FOR name IN SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace
        AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'twicesafe_schema'
    LOOP EXECUTE format('DELETE FROM %s', name); END LOOP;
END $$
"""
"""Everything but which schema the tables are of."""


def emptied_place(server: PostgresqlServer, kind: str, layout: str = "") -> Place:
    """One that stores of this kind and layout had before, or a new one: tables cost a server more than most checks."""
    shelf = _shelves[server.port, f"{kind}, {layout}"]
    if not shelf:
        place = new_place(server, kind)
        place.shelf = shelf
        return place
    name = shelf.pop()
    admin = psycopg.connect(server.dsn(), autocommit=True)
    admin.execute(f"SET search_path = {name}")
    admin.execute("INSERT INTO clock VALUES (0)")
    return Place(admin, name, server.dsn(), kind, shelf)


def new_place(server: PostgresqlServer, kind: str) -> Place:
    """A new one."""
    dsn = server.dsn()
    name = f"place{next(_names)}"
    admin = psycopg.connect(dsn, autocommit=True)
    admin.execute(f"CREATE SCHEMA {name}")
    admin.execute(f"SET search_path = {name}")
    admin.execute("CREATE TABLE effects (id bigserial PRIMARY KEY, name text NOT NULL)")
    admin.execute("CREATE TABLE clock (now bigint NOT NULL)")
    admin.execute("INSERT INTO clock VALUES (0)")
    return Place(admin, name, dsn, kind)


def as_async(store: Store | AsyncStore) -> AsyncStore:
    """Both kinds as one."""
    return cast("AsyncStore", store) if hasattr(store, "aclose") else StoreInThreads(cast("Store", store))


def interpose(store: Any, call: Callable[[int], Any]) -> None:
    """Have `call(n)` called before the n-th statement from now on."""
    numbers = count()
    perform = type(store).perform

    async def async_perform(*arguments: Any, **named: Any) -> Any:
        await _result(call(next(numbers)))
        return await perform(store, *arguments, **named)

    def sync_perform(*arguments: Any, **named: Any) -> Any:
        call(next(numbers))
        return perform(store, *arguments, **named)

    store.perform = async_perform if asyncio.iscoroutinefunction(perform) else sync_perform


def unlocked(place: Place) -> None:
    """Until the server has noticed that a session is gone, and let go of its locks one by one."""
    for _ in range(100_000):
        if not place.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"):
            return
    pytest.fail("a session that is gone still holds a lock")


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


async def _result(value: Any) -> Any:
    return await value if isinstance(value, Coroutine) else value
