"""A PostgreSQL store for asyncio, whatever the driver: the methods, and what becomes of a connection.

Theory of operation. A connection is taken for one method of the leased way, or for one transaction from its claim to
its end; whoever waits has none. A connection on which anything went wrong is rolled back before anybody else gets it,
in a task of its own, because the one it went wrong for may have been cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import LeaseLostError, StoreError
from twicesafe.stores.contract import AsyncTransaction, AuditEntry, Outstanding, Swept
from twicesafe.stores.postgresql import AGAIN, ENDS, ROUNDS, Failure, ended, in_doubt, parts, store_error, waited_for
from twicesafe.stores.postgresql_notices import HINT, hear, notice
from twicesafe.stores.postgresql_waiting import Lines, WakeUps
from twicesafe.stores.sql.daily import DailyQueries, days_due, keep_days
from twicesafe.stores.sql.leased import SqlSteps
from twicesafe.stores.sql.schema import apply_schema, check_schema
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.sql.transactional import ENDED_EARLY, SqlTransactionSteps
from twicesafe.stores.steps import Rows, Statement, Step, Steps, adrive, once

R = TypeVar("R")


class AsyncConnections(Lines, Protocol):
    """A driver and its pool."""

    revokes: bool
    """Whether a handler that kept its connection can no longer use it once it was released."""

    async def acquire(self) -> Any:
        """A connection that begins no transaction by itself, or StoreUnavailableError."""

    async def release(self, connection: Any) -> None:
        """Give it back. What is cancelled here goes on by itself."""

    async def send(self, connection: Any, before: tuple[Statement, ...], statement: Statement) -> Rows:
        """Perform `before`, whose answers nobody wants, and `statement`, in as few round trips as the driver knows."""

    def failure(self, error: Exception) -> Failure | None:
        """What an exception of `send` says; None where it is no matter of the connection's or the server's."""

    def reset_sql(self, connection: Any) -> str:
        """What cleans up after a handler. Empty where somebody else does."""

    def begun(self, connection: Any, *, open: bool) -> None:  # noqa: A002 - the one word for it
        """A transaction has begun, or is about to end, behind the driver's back."""

    def ended_early(self, connection: Any) -> bool:
        """Whether the server's last word was that no transaction is open. False where the connection is lost."""

    def broken(self, connection: Any) -> None:
        """Close it without a word to the server."""

    async def aclose(self) -> None:
        """Close the pool, if it is the store's own."""


class AsyncPostgresqlStore:
    """An AsyncStore over some driver's connections."""

    transactional = True

    def __init__(self, connections: AsyncConnections, sql: Queries, url: str) -> None:
        self._connections: Final = connections
        self._sql: Final = sql
        self._url: Final = url
        self._steps: Final = SqlSteps(sql)
        self._cleanings: set[asyncio.Task[None]] = set()
        self._wake_ups: Final = WakeUps(connections, sql)

    # --- the exchange -------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return await self._run(self._steps.claim(claim))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        await self._run(self._steps.renew(own, lease_us))

    async def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        await self._run(self._steps.advance(own, seen, point, data))

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        await self._run(self._steps.start_answer(own, head))

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
        await self._run(self._steps.complete(own, response, key_us, body_us))

    async def release(self, own: Ownership) -> None:
        """See Session.release."""
        await self._run(self._steps.release(own))

    async def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        await self._run(self._steps.hold(own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> AsyncTransaction:
        """See Store.transaction. Its `connection` is the driver's, whose `transaction()` makes savepoints."""
        return AsyncPostgresqlTransaction(self, self._connections, SqlTransactionSteps(self._sql, self._steps))

    async def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return await self._run(self._steps.read(digest))

    async def glance(self, digest: bytes) -> Found:
        """See Glances.glance."""
        return await self._run(self._steps.glance(digest))

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return await self._run(self._steps.settle(own, response, key_us, body_us))

    async def settled(self, digest: bytes, within_us: Micros) -> None:
        """Return when the record of `digest` may have changed, or the time is over. Holds no connection of the pool.

        Never raises for lack of a server: then it lets some of the time pass.
        """
        await self._wake_ups.settled(digest, within_us)

    async def now(self) -> Instant:
        """See Store.now."""
        return await self._run(self._steps.now())

    async def purge(self, limit: int = 1000) -> int:
        """See Store.purge. In the daily layout it also makes the days to come, and drops those that are over."""
        touched = await self._run(self._steps.purge(limit))
        if isinstance(self._sql, DailyQueries) and touched < limit:
            await self._keep_days(self._sql)
        return touched

    async def _keep_days(self, sql: DailyQueries) -> None:
        """By many at once: what another one does first fails here, and is no failure as long as things move on."""
        failure: StoreError | None = None
        before: list[tuple[object, ...]] = []
        while due := await self._run(days_due(sql)):
            if failure is not None and due == before:
                raise failure
            before = due
            try:
                await self._run(keep_days(sql))
            except StoreError as error:
                failure = error

    async def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale."""
        return await self._run(self._steps.settle_stale(look_at))

    async def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool:
        """See Resumes.reopen."""
        return await self._run(self._steps.reopen(own, seen, point, data))

    async def outstanding(self, after: object = None, look_at: int = 5_000) -> Outstanding:
        """See Resumes.outstanding."""
        return await self._run(self._steps.outstanding(after, look_at))

    async def audit(self, entry: AuditEntry) -> None:
        """See Audits.audit."""
        await self._run(self._steps.audit(entry))

    async def audited(self, entry: AuditEntry, outcome: str) -> None:
        """See Audits.audited."""
        await self._run(self._steps.audited(entry, outcome))

    async def audits(self, digest: bytes) -> list[AuditEntry]:
        """See Audits.audits."""
        return await self._run(self._steps.audits(digest))

    async def hint(self) -> None:
        """See Hints.hint."""
        with suppress(StoreError):
            await self._run(once(notice(HINT)))

    async def hear_hints(self, told: Callable[[], None]) -> None:
        """See HearsHints.hear_hints."""
        await hear(self._connections, told)

    async def check_schema(self) -> None:
        """See Store.check_schema."""
        await self._run(check_schema(self._sql, self._url))

    async def apply_schema(self) -> None:
        """See Store.apply_schema."""
        await self._run(apply_schema(self._sql))

    async def aclose(self) -> None:
        """See Store.close. A pool of your own stays open."""
        await self._wake_ups.aclose()
        if self._cleanings:
            await asyncio.wait(self._cleanings)
        await self._connections.aclose()

    # --- statements ---------------------------------------------------------------------------------------------------

    async def _run(self, steps: Steps[R]) -> R:
        connection = await self._connections.acquire()
        clean = False
        try:
            result = await adrive(steps, partial(self.perform, connection))
            clean = True
        except LeaseLostError:
            clean = True
            raise
        finally:
            await self.give_back(connection, clean=clean)
        return result

    async def perform(self, connection: Any, step: Step, *, in_transaction: bool = False) -> Rows:
        """Send it, and say what a failure means. Outside a transaction it is sent again when the server asks."""
        before, statement = parts(step)
        rounds = 1 if in_transaction or before else ROUNDS
        while True:
            rounds -= 1
            try:
                rows = await self._connections.send(connection, before, statement)
            except Exception as error:
                failure = self._connections.failure(error)
                if failure is None:
                    raise
                if rounds and failure.sqlstate in AGAIN:
                    continue
                doubtful = in_doubt(statement, in_transaction=in_transaction)
                raise store_error(failure, self._url, doubtful=doubtful) from error
            if not in_transaction and (digest := waited_for(statement, rows)) is not None:
                await self.tell(connection, digest)
            return rows

    async def tell(self, connection: Any, digest: bytes) -> None:
        """Wake those who wait for a key that is settled and committed. Who is not reached looks by itself, later."""
        try:
            await self._connections.send(connection, (), notice(digest.hex()))
        except Exception as error:
            self._connections.broken(connection)
            if self._connections.failure(error) is None:
                raise

    async def give_back(self, connection: Any, *, clean: bool) -> None:
        """For others to take, rolled back first where it is not clean. Cancelled, it goes on by itself."""
        if clean:
            await self._connections.release(connection)
            return
        task = asyncio.ensure_future(self._clean(connection))
        self._cleanings.add(task)
        task.add_done_callback(self._cleanings.discard)
        await asyncio.shield(task)

    async def _clean(self, connection: Any) -> None:
        connections = self._connections
        rollback = self._sql("rollback")
        try:
            connections.begun(connection, open=False)
            await connections.send(connection, (), ended(rollback, connections.reset_sql(connection)))
        except Exception as error:
            connections.broken(connection)
            if connections.failure(error) is None:
                raise
        finally:
            await connections.release(connection)


class AsyncPostgresqlTransaction:
    """One transaction; a context manager, for one task at a time."""

    def __init__(self, store: AsyncPostgresqlStore, connections: AsyncConnections, steps: SqlTransactionSteps) -> None:
        self._store = store
        self._connections = connections
        self._steps = steps
        self._connection: Any = None
        self._clean = self._shown = False
        self._waited_for: bytes | None = None

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._steps.open:
            self._steps.left()
            self._clean = False
        await self._give_back()

    @property
    def connection(self) -> Any:
        """See Transaction.connection."""
        if self._connection is None or not self._steps.open:
            raise LookupError("a transaction has a connection from its claim or begin() to its end")
        return self._connection

    async def begin(self) -> None:
        """See Transaction.begin."""
        await self._run(self._steps.begin())

    async def commit(self) -> None:
        """See Transaction.commit."""
        self._refuse_if_ended()
        await self._run(self._steps.commit())

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return await self._run(self._steps.claim(claim))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """There is no lease: the lock of the key lasts as long as the transaction."""

    async def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance. RuntimeError where the phase has ended the transaction itself."""
        self._refuse_if_ended()
        await self._run(self._steps.advance(own, seen, point, data))

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._refuse_if_ended()
        await self._run(self._steps.start_answer(own, head))

    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete. RuntimeError where the handler has ended the transaction itself."""
        self._refuse_if_ended()
        await self._run(self._steps.complete(own, response, key_us, body_us, keep_effects=keep_effects))

    async def release(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.release."""
        await self._run(self._steps.roll_back())

    async def hold(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.hold."""
        await self._run(self._steps.roll_back())

    def _refuse_if_ended(self) -> None:
        if self._steps.open and self._connection is not None and self._connections.ended_early(self._connection):
            raise RuntimeError(ENDED_EARLY)

    async def _run(self, steps: Steps[R]) -> R:
        was_open = self._steps.open
        was_clean, self._clean = self._clean or self._connection is None, False
        try:
            result = await adrive(steps, self._perform)
            self._clean = was_clean
        except LeaseLostError:
            self._clean = was_clean
            raise
        finally:
            if not self._steps.open and (self._connections.revokes or not self._shown):
                # At once: what is left of the exchange may take as long as its client's line is slow.
                await self._give_back()
        if not was_open and self._steps.open:
            self._connections.begun(self._connection, open=True)
            self._shown = True
        return result

    async def _perform(self, step: Step) -> Rows:
        if self._connection is None:
            self._connection = await self._connections.acquire()
        if type(step) is Statement and step.name in ENDS:
            self._connections.begun(self._connection, open=False)
            digest, self._waited_for = self._waited_for, None
            end = ended(step, self._connections.reset_sql(self._connection))
            rows = await self._store.perform(self._connection, end, in_transaction=True)
            if digest is not None and step.name == "commit":
                await self._store.tell(self._connection, digest)
            return rows
        rows = await self._store.perform(self._connection, step, in_transaction=True)
        if type(step) is Statement and step.name == "record":
            self._waited_for = waited_for(step, rows)
        return rows

    async def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._shown = False
            await self._store.give_back(connection, clean=self._clean)
