"""Records in a SQLite file, beside your own tables, for any number of processes on one host.

Leased statements of all threads and tasks are committed in groups (sqlite_writer.py). A transaction has a connection
of its own and the write lock from its claim to its commit: SQLite has one writer at a time, so keep handlers short.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import ConfigurationError
from twicesafe.stores.contract import AsyncTransaction, AuditEntry, Outstanding, Swept, Transaction
from twicesafe.stores.sql.leased import SqlSteps
from twicesafe.stores.sqlite_connection import Configure, SqliteFile, as_it_is, host_clock
from twicesafe.stores.sqlite_transaction import Connections, SqliteTransaction
from twicesafe.stores.sqlite_writer import Writer
from twicesafe.stores.steps import Rows, Statement, once

__all__ = ["AsyncSqliteStore", "SqliteStore"]

if TYPE_CHECKING:
    from twicesafe.stores.aiosqlite import AsyncSqliteTransactions

DEFAULT_BUSY_TIMEOUT: Final = timedelta(seconds=5)
"""How long a statement waits for other writers; then the store is unavailable. SQLite's own shell and most libraries
wait as long."""


class SqliteStore:
    """A Store on the file at `path`, safe to share between threads.

    `busy_timeout` bounds every wait for another writer. `configure` prepares the connections that handlers get, with
    `PRAGMA foreign_keys = ON`, say. `clock` gives microseconds since the epoch; only tests have a reason to set it.
    """

    transactional = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout: timedelta = DEFAULT_BUSY_TIMEOUT,
        configure: Configure = as_it_is,
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        self._file = SqliteFile(path, busy_timeout, clock, configure)
        self._writer = Writer(self._file)
        self._steps = SqlSteps(self._file.sql)
        self._connections = Connections(self._file)

    # --- the exchange -------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return self._writer.run(partial(self._steps.claim, claim))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        self._writer.run(partial(self._steps.renew, own, lease_us))

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        self._writer.run(partial(self._steps.advance, own, seen, point, data))

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._writer.run(partial(self._steps.start_answer, own, head))

    def complete(
        self,
        own: Ownership,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        *,
        keep_effects: bool = True,  # noqa: ARG002 - nothing to roll back here
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here."""
        self._writer.run(partial(self._steps.complete, own, response, key_us, body_us))

    def release(self, own: Ownership) -> None:
        """See Session.release."""
        self._writer.run(partial(self._steps.release, own))

    def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        self._writer.run(partial(self._steps.hold, own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """See Store.transaction. Its `connection` is a sqlite3.Connection that commits nothing by itself."""
        return SqliteTransaction(self._file, self._writer, self._connections)

    def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return self._writer.run(partial(self._steps.read, digest), under_lock=True)

    def glance(self, digest: bytes) -> Found:
        """See Glances.glance."""
        return self._writer.run(partial(self._steps.glance, digest))

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return self._writer.run(partial(self._steps.settle, own, response, key_us, body_us))

    def now(self) -> Instant:
        """See Store.now."""
        return self._file.clock()

    def purge(self, limit: int = 1000) -> int:
        """See Store.purge."""
        return self._writer.run(partial(self._steps.purge, limit))

    def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale."""
        return self._writer.run(partial(self._steps.settle_stale, look_at))

    def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool:
        """See Resumes.reopen."""
        return self._writer.run(partial(self._steps.reopen, own, seen, point, data))

    def outstanding(self, after: object = None, look_at: int = 5_000) -> Outstanding:
        """See Resumes.outstanding."""
        return self._writer.run(partial(self._steps.outstanding, after, look_at))

    def ask(self, statement: Statement) -> Rows:
        """Perform one statement of the store's, for those whose transactions are elsewhere."""
        return self._writer.run(partial(once, statement))

    def audit(self, entry: AuditEntry) -> None:
        """See Audits.audit."""
        self._writer.run(partial(self._steps.audit, entry))

    def audited(self, entry: AuditEntry, outcome: str) -> None:
        """See Audits.audited."""
        self._writer.run(partial(self._steps.audited, entry, outcome))

    def audits(self, digest: bytes) -> list[AuditEntry]:
        """See Audits.audits."""
        return self._writer.run(partial(self._steps.audits, digest))

    def check_schema(self) -> None:
        """See Store.check_schema."""
        self._file.check_schema()

    def apply_schema(self) -> None:
        """See Store.apply_schema."""
        self._file.apply_schema()

    def close(self) -> None:
        """See Store.close. Finishes what was begun first."""
        self._writer.close()
        self._connections.close()


class AsyncSqliteStore:
    """An AsyncStore on the file at `path`; see SqliteStore for the settings.

    Transactions need the package aiosqlite (the extra of that name); the leased way needs nothing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout: timedelta = DEFAULT_BUSY_TIMEOUT,
        configure: Configure = as_it_is,
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        self._file = SqliteFile(path, busy_timeout, clock, configure)
        self._writer = Writer(self._file)
        self._steps = SqlSteps(self._file.sql)
        self.transactional = find_spec("aiosqlite") is not None
        self._transactions: AsyncSqliteTransactions | None = None

    # --- the exchange -------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return await self._writer.arun(partial(self._steps.claim, claim))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        await self._writer.arun(partial(self._steps.renew, own, lease_us))

    async def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        await self._writer.arun(partial(self._steps.advance, own, seen, point, data))

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        await self._writer.arun(partial(self._steps.start_answer, own, head))

    async def complete(
        self,
        own: Ownership,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        *,
        keep_effects: bool = True,  # noqa: ARG002 - nothing to roll back here
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here."""
        await self._writer.arun(partial(self._steps.complete, own, response, key_us, body_us))

    async def release(self, own: Ownership) -> None:
        """See Session.release."""
        await self._writer.arun(partial(self._steps.release, own))

    async def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        await self._writer.arun(partial(self._steps.hold, own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> AsyncTransaction:
        """See Store.transaction. Its `connection` is an aiosqlite.Connection that commits nothing by itself."""
        if self._transactions is None:
            if not self.transactional:
                raise ConfigurationError(
                    "transactions of AsyncSqliteStore need the package aiosqlite: pip install 'twicesafe[aiosqlite]'"
                )
            from twicesafe.stores.aiosqlite import AsyncSqliteTransactions

            self._transactions = AsyncSqliteTransactions(self._file, self._writer)
        return self._transactions.new()

    async def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return await self._writer.arun(partial(self._steps.read, digest), under_lock=True)

    async def glance(self, digest: bytes) -> Found:
        """See Glances.glance."""
        return await self._writer.arun(partial(self._steps.glance, digest))

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return await self._writer.arun(partial(self._steps.settle, own, response, key_us, body_us))

    async def now(self) -> Instant:
        """See Store.now."""
        return self._file.clock()

    async def purge(self, limit: int = 1000) -> int:
        """See Store.purge."""
        return await self._writer.arun(partial(self._steps.purge, limit))

    async def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale."""
        return await self._writer.arun(partial(self._steps.settle_stale, look_at))

    async def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool:
        """See Resumes.reopen."""
        return await self._writer.arun(partial(self._steps.reopen, own, seen, point, data))

    async def outstanding(self, after: object = None, look_at: int = 5_000) -> Outstanding:
        """See Resumes.outstanding."""
        return await self._writer.arun(partial(self._steps.outstanding, after, look_at))

    async def ask(self, statement: Statement) -> Rows:
        """Perform one statement of the store's, for those whose transactions are elsewhere."""
        return await self._writer.arun(partial(once, statement))

    async def audit(self, entry: AuditEntry) -> None:
        """See Audits.audit."""
        await self._writer.arun(partial(self._steps.audit, entry))

    async def audited(self, entry: AuditEntry, outcome: str) -> None:
        """See Audits.audited."""
        await self._writer.arun(partial(self._steps.audited, entry, outcome))

    async def audits(self, digest: bytes) -> list[AuditEntry]:
        """See Audits.audits."""
        return await self._writer.arun(partial(self._steps.audits, digest))

    async def check_schema(self) -> None:
        """See Store.check_schema."""
        await asyncio.to_thread(self._file.check_schema)

    async def apply_schema(self) -> None:
        """See Store.apply_schema."""
        await asyncio.to_thread(self._file.apply_schema)

    async def aclose(self) -> None:
        """See Store.close. Finishes what was begun first."""
        await asyncio.to_thread(self._writer.close)
        if self._transactions is not None:
            await self._transactions.aclose()
