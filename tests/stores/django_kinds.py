"""Stores that join Django's transactions, on databases that are made for a test: each is an alias of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from itertools import count
from pathlib import Path
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections, models
from psycopg.conninfo import conninfo_to_dict

from tests.servers.postgresql import PostgresqlServer
from tests.stores import postgresql_kinds
from tests.stores.postgresql_kinds import MANUAL_CLOCK, POOL_SIZE, Place, _result, interpose
from twicesafe.stores.django import AsyncDjangoStore, DjangoStore
from twicesafe.testing import ManualClock, StoreUnderTest
from twicesafe.testing.threads import TransactionInThread

NOWHERE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "nowhere.db"}
if not settings.configured:
    settings.configure(DATABASES={"default": NOWHERE}, USE_TZ=True, INSTALLED_APPS=[])
    django.setup()


class Effect(models.Model):
    """A row of the application's own."""

    id = models.AutoField(primary_key=True)
    name = models.TextField()

    class Meta:
        app_label = "effects"
        db_table = "effects"
        managed = False


_aliases = count(1)


def alias_of(engine: str, name: str, **more: Any) -> str:
    """A database under a new alias."""
    alias = f"db{next(_aliases)}"
    described = {"ENGINE": f"django.db.backends.{engine}", "NAME": name, **more}
    connections.settings[alias] = connections.configure_settings({"default": NOWHERE, alias: described})[alias]
    return alias


def forget(alias: str) -> None:
    """Close what is left of it."""
    wrapper = connections[alias]
    wrapper.close()
    if wrapper.vendor == "postgresql":
        wrapper.close_pool()
    del connections[alias]
    del connections.settings[alias]


def write(connection: Any, name: str) -> None:
    """A row of the application's own."""
    Effect.objects.using(connection.alias).create(name=name)


async def awrite(connection: Any, name: str) -> None:
    """The same, by the asynchronous ORM."""
    await Effect.objects.using(connection.alias).acreate(name=name)


class Owned(DjangoStore):
    """A store whose database is forgotten when it is closed."""

    def __init__(self, alias: str, **options: Any) -> None:
        super().__init__(alias, **options)
        self.alias = alias

    def close(self) -> None:
        super().close()
        forget(self.alias)


class AsyncOwned(AsyncDjangoStore):
    """The same, for asyncio."""

    def __init__(self, alias: str, **options: Any) -> None:
        super().__init__(alias, **options)
        self.alias = alias

    async def aclose(self) -> None:
        await super().aclose()
        await asyncio.to_thread(forget, self.alias)


KINDS: dict[str, tuple[Any, Any]] = {"Django": (Owned, write), "Django, async": (AsyncOwned, awrite)}


class DjangoPlace(Place):
    """A schema of its own, and stores that join Django's transactions on it."""

    def alias(
        self, *, port: int | None = None, settings: dict[str, str] | None = None, pool_size: int = POOL_SIZE
    ) -> str:
        """A new alias for it."""
        parts = conninfo_to_dict(self.dsn)
        words = {"search_path": self.name, **(settings or {})}
        return alias_of(
            "postgresql",
            str(parts["dbname"]),
            USER=parts["user"],
            HOST=parts["host"],
            PORT=str(port or parts["port"]),
            OPTIONS={
                "options": " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in words.items()),
                "pool": {"min_size": 0, "max_size": pool_size},
            },
        )

    def store(self, *, now_sql: str | None = None, **options: Any) -> Any:
        """A store of the kind under test."""
        return KINDS[self.kind][0](self.alias(**options), now_sql=now_sql)

    def write(self, connection: Any, name: str) -> Any:
        """A row of the application's own."""
        return KINDS[self.kind][1](connection, name)

    async def sql_in(self, transaction: Any, query: str) -> Any:
        """Run `query` as a handler would; its first value, if it has any."""

        def run() -> Any:
            with transaction.connection.cursor() as cursor:
                cursor.execute(query)
                row = cursor.fetchone() if cursor.description else None
                return None if row is None else row[0]

        if isinstance(transaction, TransactionInThread):
            return await transaction.run(run)
        return await sync_to_async(run)()

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


def interpose_leased(leased: Any, call: Any) -> None:
    """Have `call(n)` called before the n-th statement of the leased way from now on."""
    if hasattr(leased, "perform"):
        interpose(leased, call)
        return
    loop = asyncio.get_running_loop()
    interpose(leased.store, lambda n: asyncio.run_coroutine_threadsafe(_result(call(n)), loop).result(60))


def new_place(server: PostgresqlServer, kind: str) -> DjangoPlace:
    """A new one."""
    made = postgresql_kinds.new_place(server, kind)
    return DjangoPlace(made.admin, made.name, made.dsn, made.kind)


def emptied_place(server: PostgresqlServer, kind: str) -> DjangoPlace:
    """See postgresql_kinds."""
    made = postgresql_kinds.emptied_place(server, kind)
    return DjangoPlace(made.admin, made.name, made.dsn, made.kind, made.shelf)


def on_file(path: Path, kind: str, clock: ManualClock) -> StoreUnderTest:
    """A store of this kind on a SQLite file."""
    ledger = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    ledger.execute("CREATE TABLE effects (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL)")
    made, written = KINDS[kind]

    def make() -> Any:
        return made(alias_of("sqlite3", str(path)), clock=clock)

    def effects(name: str) -> int:
        found: int = ledger.execute("SELECT count(*) FROM effects WHERE name = ?", (name,)).fetchone()[0]
        return found

    return StoreUnderTest(store=make(), write_effect=written, count_effects=effects, elsewhere=make, close=ledger.close)
