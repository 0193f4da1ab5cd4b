"""A MySQL store for asyncio, whatever the driver: the methods, and what becomes of a connection.

Theory of operation. A connection is taken for one method of the leased way, or for one transaction from its claim to
its end; whoever waits has none. A connection on which anything went wrong is rolled back before anybody else gets it,
in a task of its own, because the one it went wrong for may have been cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import LeaseLostError
from twicesafe.stores.contract import AsyncTransaction, AuditEntry, Outstanding, Swept
from twicesafe.stores.mysql import AGAIN, ROUNDS, Failure, Reply, fitting, statements_of, stopped, store_error
from twicesafe.stores.sql.mysql_leased import READ_PATIENCE, MysqlSteps
from twicesafe.stores.sql.mysql_transactional import MysqlTransactionSteps
from twicesafe.stores.sql.schema import apply_schema, check_schema
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Batch, Rows, Statement, Step, Steps, adrive

R = TypeVar("R")


class AsyncConnections(Protocol):
    """A driver and its pool."""

    async def acquire(self) -> Any:
        """A connection that commits each statement by itself, or StoreUnavailableError."""

    def release(self, connection: Any) -> Awaitable[None] | None:
        """Give it back. What takes its time is to be awaited; cancelled, it goes on by itself."""

    def attune(self, connection: Any, *, in_transaction: bool) -> tuple[Statement, ...]:
        """What has to be said first, so that a statement of the store waits for locks within bounds, and a handler's
        for as long as the server's settings say."""

    async def send(self, connection: Any, reply: Reply) -> None:
        """Perform the statements of `reply`, in as few round trips as the connection allows, and put in what came."""

    def largest(self, connection: Any) -> int:
        """Bytes of the largest packet that the server takes."""

    def failure(self, error: Exception) -> Failure | None:
        """What an exception of `send` says; None where it is no matter of the connection's or the server's."""

    def broken(self, connection: Any) -> None:
        """Close it without a word to the server."""

    async def aclose(self) -> None:
        """Close the pool, if it is the store's own."""


class AsyncMysqlStore:
    """An AsyncStore over some driver's connections."""

    transactional = True

    def __init__(self, connections: AsyncConnections, sql: Queries, url: str, timeout: float) -> None:
        self._connections: Final = connections
        self._sql: Final = sql
        self._url: Final = url
        self._steps: Final = MysqlSteps(sql, min(READ_PATIENCE, int(timeout / 2)))
        self._cleanings: set[asyncio.Task[None]] = set()

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
        """See Session.complete. A body that no packet could hold is not kept. `keep_effects` means nothing here."""
        await self._run_fitted(response, lambda fitted: self._steps.complete(own, fitted, key_us, body_us))

    async def release(self, own: Ownership) -> None:
        """See Session.release."""
        await self._run(self._steps.release(own))

    async def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        await self._run(self._steps.hold(own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> AsyncTransaction:
        """See Store.transaction. Its `connection` is the driver's."""
        return AsyncMysqlTransaction(self, self._connections, MysqlTransactionSteps(self._sql))

    async def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return await self._run(self._steps.read(digest))

    async def glance(self, digest: bytes) -> Found:
        """See Glances.glance."""
        return await self._run(self._steps.glance(digest))

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle. A body that no packet could hold is not kept."""
        if response is None:
            return await self._run(self._steps.settle(own, None, key_us, body_us))
        return await self._run_fitted(response, lambda fitted: self._steps.settle(own, fitted, key_us, body_us))

    async def now(self) -> Instant:
        """See Store.now."""
        return await self._run(self._steps.now())

    async def purge(self, limit: int = 1000) -> int:
        """See Store.purge."""
        return await self._run(self._steps.purge(limit))

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

    async def check_schema(self) -> None:
        """See Store.check_schema."""
        await self._run(check_schema(self._sql, self._url))

    async def apply_schema(self) -> None:
        """See Store.apply_schema."""
        await self._run(apply_schema(self._sql))

    async def aclose(self) -> None:
        """See Store.close. A pool of your own stays open."""
        if self._cleanings:
            await asyncio.wait(self._cleanings)
        await self._connections.aclose()

    # --- statements ---------------------------------------------------------------------------------------------------

    async def _run_fitted(self, response: StoredResponse, steps_of: Callable[[StoredResponse], Steps[R]]) -> R:
        connection = await self._connections.acquire()
        return await self._run(steps_of(fitting(response, self._connections.largest(connection))), connection)

    async def _run(self, steps: Steps[R], connection: Any = None) -> R:
        if connection is None:
            connection = await self._connections.acquire()
        clean = False
        try:
            result = await adrive(steps, partial(self.perform, connection))
            clean = True
        except LeaseLostError:
            clean = True
            raise
        finally:
            given_back = self.give_back(connection, clean=clean)
            if given_back is not None:
                await given_back
        return result

    async def perform(self, connection: Any, step: Step, *, in_transaction: bool = False) -> Rows:
        """Send it, and say what a failure means. Outside a transaction it is sent again where nothing was done."""
        connections = self._connections
        rounds = 0 if in_transaction or isinstance(step, Batch) else ROUNDS
        while True:
            first = connections.attune(connection, in_transaction=in_transaction)
            reply = Reply((*first, *statements_of(step)))
            try:
                await connections.send(connection, reply)
            except Exception as error:
                failure = connections.failure(error)
                if failure is None:
                    raise
                if reply.committed:
                    # Whatever it was, it came after the commit.
                    connections.broken(connection)
                    return reply.rows
                rows = stopped(reply, failure)
                if rows is not None:
                    return rows
                rounds -= AGAIN.get(failure.code or 0, ROUNDS)
                if rounds > 0:
                    continue
                raise store_error(failure, reply, self._url, in_transaction=in_transaction) from error
            return reply.rows

    def give_back(self, connection: Any, *, clean: bool) -> Awaitable[None] | None:
        """For others to take, rolled back first where it is not clean. What takes its time is to be awaited; cancelled,
        it goes on by itself."""
        if clean:
            return self._connections.release(connection)
        task = asyncio.ensure_future(self._clean(connection))
        self._cleanings.add(task)
        task.add_done_callback(self._cleanings.discard)
        return asyncio.shield(task)

    async def _clean(self, connection: Any) -> None:
        connections = self._connections
        try:
            await connections.send(connection, Reply((self._sql("rollback"), self._sql("unlock"))))
        except Exception as error:
            connections.broken(connection)
            if connections.failure(error) is None:
                raise
        finally:
            released = connections.release(connection)
            if released is not None:
                await released


class AsyncMysqlTransaction:
    """One transaction; a context manager, for one task at a time."""

    def __init__(self, store: AsyncMysqlStore, connections: AsyncConnections, steps: MysqlTransactionSteps) -> None:
        self._store = store
        self._connections = connections
        self._steps = steps
        self._connection: Any = None
        self._clean = self._shown = False

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
        """See Transaction.commit. RuntimeError where the handler has ended the transaction itself."""
        await self._run(self._steps.commit())

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return await self._run(self._steps.claim(claim))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """There is no lease: the lock of the key lasts as long as the transaction."""

    async def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        await self._run(self._steps.advance(own, seen, point, data))

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer. RuntimeError where the handler has ended the transaction itself."""
        await self._run(self._steps.start_answer(own, head))

    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete. RuntimeError where the handler has ended the transaction itself.

        A body that no packet could hold is not kept.
        """
        if self._connection is not None:
            response = fitting(response, self._connections.largest(self._connection))
        await self._run(self._steps.complete(own, response, key_us, body_us, keep_effects=keep_effects))

    async def release(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.release."""
        await self._run(self._steps.roll_back())

    async def hold(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.hold."""
        await self._run(self._steps.roll_back())

    async def _run(self, steps: Steps[R]) -> R:
        was_clean, self._clean = self._clean or self._connection is None, False
        try:
            result = await adrive(steps, self._perform)
            self._clean = was_clean
        except LeaseLostError:
            self._clean = was_clean
            raise
        finally:
            if not self._steps.open and not self._shown:
                # At once: what is left of the exchange may take as long as its client's line is slow.
                await self._give_back()
        self._shown = self._shown or self._steps.open
        return result

    async def _perform(self, step: Step) -> Rows:
        if self._connection is None:
            self._connection = await self._connections.acquire()
        return await self._store.perform(self._connection, step, in_transaction=True)

    async def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._shown = False
            given_back = self._store.give_back(connection, clean=self._clean)
            if given_back is not None:
                await given_back
