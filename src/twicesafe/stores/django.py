"""Records beside your models by way of Django 5: the handler's ORM work is the transaction, on PostgreSQL or SQLite.

Claim, everything that the handler does on the database of one alias, and the answer are one `transaction.atomic`. What
the ORM does in the same thread is part of it by itself; nothing has to be handed around.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar
from weakref import WeakSet

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections  # type: ignore[import-untyped]

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.record import Instant
from twicesafe.errors import ConfigurationError
from twicesafe.stores.contract import Transaction
from twicesafe.stores.django_work import Files, StoresOnFile, leased_postgresql, on_postgresql, on_sqlite
from twicesafe.stores.joined import JoinedStore, Turn
from twicesafe.stores.joined_async import AsyncJoinedStore, CarriedStore, CarriedTransaction
from twicesafe.stores.sqlite import DEFAULT_BUSY_TIMEOUT, AsyncSqliteStore, SqliteStore
from twicesafe.stores.sqlite_connection import host_clock

__all__ = ["AsyncDjangoStore", "DjangoStore"]

R = TypeVar("R")


class DjangoStore(JoinedStore):
    """A Store in the database that settings.DATABASES calls `using`.

    Handlers that run in the thread of the transaction use models as ever; `connection` is Django's for this alias.
    Isolation level, pool, time-outs and, on SQLite, the durability of a transaction are those of the settings.
    `now_sql` (PostgreSQL) and `clock` (SQLite) replace the store's clock; only tests have a reason to set them.
    """

    def __init__(
        self,
        using: str = "default",
        *,
        busy_timeout: timedelta = DEFAULT_BUSY_TIMEOUT,
        now_sql: str | None = None,
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        if _vendor(using) == "sqlite":
            files = Files(using, busy_timeout, clock)
            stores = StoresOnFile(files, lambda path: SqliteStore(path, busy_timeout=busy_timeout, clock=clock))
            turn = Turn(busy_timeout.total_seconds())
            super().__init__(stores.now, lambda: on_sqlite(files, turn, stores.now().ask))
        else:
            leased = leased_postgresql(using, now_sql)
            super().__init__(lambda: leased, lambda: on_postgresql(leased))


class AsyncDjangoStore(AsyncJoinedStore):
    """An AsyncStore in the database that settings.DATABASES calls `using`.

    A transaction runs in the thread of its request, as Django's asynchronous ORM does: in that of asgiref's
    ThreadSensitiveContext, which Django's ASGI handler makes for each request, or in one of its own. So `await
    Model.objects.acreate()` and `sync_to_async(work)()` of its task are part of it. See DjangoStore for the rest.
    """

    def __init__(
        self,
        using: str = "default",
        *,
        busy_timeout: timedelta = DEFAULT_BUSY_TIMEOUT,
        now_sql: str | None = None,
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        if _vendor(using) == "sqlite":
            files = Files(using, busy_timeout, clock)
            blocking = StoresOnFile(files, lambda path: SqliteStore(path, busy_timeout=busy_timeout, clock=clock))
            stores = StoresOnFile(files, lambda path: AsyncSqliteStore(path, busy_timeout=busy_timeout, clock=clock))
            turn = Turn(busy_timeout.total_seconds())
            self._blocking: StoresOnFile | None = blocking
            super().__init__(stores.now, lambda: _AsyncTransaction(on_sqlite(files, turn, blocking.now().ask)))
        else:
            leased = leased_postgresql(using, now_sql)
            carried = CarriedStore(leased, _in_any_thread)
            self._blocking = None
            super().__init__(lambda: carried, lambda: _AsyncTransaction(on_postgresql(leased)))

    async def aclose(self) -> None:
        """See Store.close."""
        await super().aclose()
        if self._blocking is not None:
            await _in_any_thread(self._blocking.now().close)


class _AsyncTransaction(CarriedTransaction):
    """See CarriedTransaction; its thread is that of the task's own calls."""

    def __init__(self, joined: Transaction) -> None:
        super().__init__(joined, self._in_thread)
        self._context: ThreadSensitiveContext | None = None
        self._own = False

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        self._enter()
        return await super().claim(claim)

    async def begin(self) -> None:
        """See Transaction.begin."""
        self._enter()
        await super().begin()

    async def __aexit__(self, *exc: object) -> None:
        try:
            await super().__aexit__(*exc)
        finally:
            if self._own:
                if SyncToAsync.thread_sensitive_context.get(None) is self._context:
                    SyncToAsync.thread_sensitive_context.set(None)  # type: ignore[arg-type]
                assert self._context is not None
                executor = SyncToAsync.context_to_thread_executor.pop(self._context, None)
                if executor is not None:
                    # The thread ends, and nobody would close what was opened in it, as Django does after a request.
                    closed = executor.submit(connections.close_all)
                    executor.shutdown(wait=False)
                    await asyncio.shield(asyncio.wrap_future(closed))

    def _enter(self) -> None:
        """From now on what this task, and those it makes, carry to threads is carried to the transaction's."""
        if self._context is None:
            self._context = SyncToAsync.thread_sensitive_context.get(None)
            if self._context is None or self._context in _OF_TRANSACTIONS:
                self._context, self._own = ThreadSensitiveContext(), True
                _OF_TRANSACTIONS.add(self._context)
                SyncToAsync.thread_sensitive_context.set(self._context)

    async def _in_thread(self, call: Callable[[], R]) -> R:
        # Whoever waits for it may do so in a task of another context.
        token = SyncToAsync.thread_sensitive_context.set(self._context)  # type: ignore[arg-type]
        try:
            return await sync_to_async(call, thread_sensitive=True)()
        finally:
            SyncToAsync.thread_sensitive_context.reset(token)


_OF_TRANSACTIONS: Final[WeakSet[ThreadSensitiveContext]] = WeakSet()
"""Contexts that transactions made for themselves. A task inherits its maker's, but never its transaction."""


async def _in_any_thread(call: Callable[[], R]) -> R:
    """See Carry. Renewals and the like must not wait for the thread in which a handler works."""
    return await sync_to_async(call, thread_sensitive=False)()


def _vendor(using: str) -> str:
    """ConfigurationError for a database that is not known."""
    if using not in connections:
        raise ConfigurationError(f"settings.DATABASES has no {using!r}")
    vendor: str = connections[using].vendor
    if vendor not in ("postgresql", "sqlite"):
        raise ConfigurationError(f"a Django store works on PostgreSQL and SQLite, not on {vendor}")
    if vendor == "postgresql" and connections[using].Database.__name__ != "psycopg":
        raise ConfigurationError("a Django store works by psycopg 3, which Django prefers where both are installed")
    return vendor
