"""A MySQL store in blocking calls, whatever the driver; mysql_async.py has the theory of operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import LeaseLostError
from twicesafe.stores.contract import AuditEntry, Outstanding, Swept, Transaction
from twicesafe.stores.mysql import AGAIN, ROUNDS, Failure, Reply, fitting, statements_of, stopped, store_error
from twicesafe.stores.sql.mysql_leased import READ_PATIENCE, MysqlSteps
from twicesafe.stores.sql.mysql_transactional import MysqlTransactionSteps
from twicesafe.stores.sql.schema import apply_schema, check_schema
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Batch, Rows, Statement, Step, Steps, drive

R = TypeVar("R")


class Connections(Protocol):
    """A driver and its pool."""

    def acquire(self) -> Any:
        """A connection that commits each statement by itself, or StoreUnavailableError."""

    def release(self, connection: Any) -> None:
        """Give it back."""

    def attune(self, connection: Any, *, in_transaction: bool) -> tuple[Statement, ...]:
        """What has to be said first, so that a statement of the store waits for locks within bounds, and a handler's
        for as long as the server's settings say."""

    def send(self, connection: Any, reply: Reply) -> None:
        """Perform the statements of `reply`, in as few round trips as the connection allows, and put in what came."""

    def largest(self, connection: Any) -> int:
        """Bytes of the largest packet that the server takes."""

    def failure(self, error: Exception) -> Failure | None:
        """What an exception of `send` says; None where it is no matter of the connection's or the server's."""

    def broken(self, connection: Any) -> None:
        """Close it without a word to the server."""

    def close(self) -> None:
        """Close the pool, if it is the store's own."""


class MysqlStore:
    """A Store over some driver's connections."""

    transactional = True

    def __init__(self, connections: Connections, sql: Queries, url: str, timeout: float) -> None:
        self._connections: Final = connections
        self._sql: Final = sql
        self._url: Final = url
        self._steps: Final = MysqlSteps(sql, min(READ_PATIENCE, int(timeout / 2)))

    # --- the exchange -------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return self._run(self._steps.claim(claim))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        self._run(self._steps.renew(own, lease_us))

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        self._run(self._steps.advance(own, seen, point, data))

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._run(self._steps.start_answer(own, head))

    def complete(
        self,
        own: Ownership,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        *,
        keep_effects: bool = True,  # noqa: ARG002 - nothing to roll back here
    ) -> None:
        """See Session.complete. A body that no packet could hold is not kept. `keep_effects` means nothing here."""
        self._run_fitted(response, lambda fitted: self._steps.complete(own, fitted, key_us, body_us))

    def release(self, own: Ownership) -> None:
        """See Session.release."""
        self._run(self._steps.release(own))

    def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        self._run(self._steps.hold(own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """See Store.transaction. Its `connection` is the driver's."""
        return MysqlTransaction(self, self._connections, MysqlTransactionSteps(self._sql))

    def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return self._run(self._steps.read(digest))

    def glance(self, digest: bytes) -> Found:
        """See Glances.glance."""
        return self._run(self._steps.glance(digest))

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle. A body that no packet could hold is not kept."""
        if response is None:
            return self._run(self._steps.settle(own, None, key_us, body_us))
        return self._run_fitted(response, lambda fitted: self._steps.settle(own, fitted, key_us, body_us))

    def now(self) -> Instant:
        """See Store.now."""
        return self._run(self._steps.now())

    def purge(self, limit: int = 1000) -> int:
        """See Store.purge."""
        return self._run(self._steps.purge(limit))

    def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale."""
        return self._run(self._steps.settle_stale(look_at))

    def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool:
        """See Resumes.reopen."""
        return self._run(self._steps.reopen(own, seen, point, data))

    def outstanding(self, after: object = None, look_at: int = 5_000) -> Outstanding:
        """See Resumes.outstanding."""
        return self._run(self._steps.outstanding(after, look_at))

    def audit(self, entry: AuditEntry) -> None:
        """See Audits.audit."""
        self._run(self._steps.audit(entry))

    def audited(self, entry: AuditEntry, outcome: str) -> None:
        """See Audits.audited."""
        self._run(self._steps.audited(entry, outcome))

    def audits(self, digest: bytes) -> list[AuditEntry]:
        """See Audits.audits."""
        return self._run(self._steps.audits(digest))

    def check_schema(self) -> None:
        """See Store.check_schema."""
        self._run(check_schema(self._sql, self._url))

    def apply_schema(self) -> None:
        """See Store.apply_schema."""
        self._run(apply_schema(self._sql))

    def close(self) -> None:
        """See Store.close. A pool of your own stays open."""
        self._connections.close()

    # --- statements ---------------------------------------------------------------------------------------------------

    def _run_fitted(self, response: StoredResponse, steps_of: Callable[[StoredResponse], Steps[R]]) -> R:
        connection = self._connections.acquire()
        return self._run(steps_of(fitting(response, self._connections.largest(connection))), connection)

    def _run(self, steps: Steps[R], connection: Any = None) -> R:
        if connection is None:
            connection = self._connections.acquire()
        clean = False
        try:
            result = drive(steps, partial(self.perform, connection))
            clean = True
        except LeaseLostError:
            clean = True
            raise
        finally:
            self.give_back(connection, clean=clean)
        return result

    def perform(self, connection: Any, step: Step, *, in_transaction: bool = False) -> Rows:
        """Send it, and say what a failure means. Outside a transaction it is sent again where nothing was done."""
        connections = self._connections
        rounds = 0 if in_transaction or isinstance(step, Batch) else ROUNDS
        while True:
            first = connections.attune(connection, in_transaction=in_transaction)
            reply = Reply((*first, *statements_of(step)))
            try:
                connections.send(connection, reply)
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

    def give_back(self, connection: Any, *, clean: bool) -> None:
        """For others to take, rolled back first where it is not clean."""
        if clean:
            self._connections.release(connection)
        else:
            self._clean(connection)

    def _clean(self, connection: Any) -> None:
        connections = self._connections
        try:
            connections.send(connection, Reply((self._sql("rollback"), self._sql("unlock"))))
        except Exception as error:
            connections.broken(connection)
            if connections.failure(error) is None:
                raise
        finally:
            connections.release(connection)


class MysqlTransaction:
    """One transaction; a context manager, for one thread at a time."""

    def __init__(self, store: MysqlStore, connections: Connections, steps: MysqlTransactionSteps) -> None:
        self._store = store
        self._connections = connections
        self._steps = steps
        self._connection: Any = None
        self._clean = self._shown = False

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._steps.open:
            self._steps.left()
            self._clean = False
        self._give_back()

    @property
    def connection(self) -> Any:
        """See Transaction.connection."""
        if self._connection is None or not self._steps.open:
            raise LookupError("a transaction has a connection from its claim or begin() to its end")
        return self._connection

    def begin(self) -> None:
        """See Transaction.begin."""
        self._run(self._steps.begin())

    def commit(self) -> None:
        """See Transaction.commit. RuntimeError where the handler has ended the transaction itself."""
        self._run(self._steps.commit())

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return self._run(self._steps.claim(claim))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """There is no lease: the lock of the key lasts as long as the transaction."""

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        self._run(self._steps.advance(own, seen, point, data))

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer. RuntimeError where the handler has ended the transaction itself."""
        self._run(self._steps.start_answer(own, head))

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete. RuntimeError where the handler has ended the transaction itself.

        A body that no packet could hold is not kept.
        """
        if self._connection is not None:
            response = fitting(response, self._connections.largest(self._connection))
        self._run(self._steps.complete(own, response, key_us, body_us, keep_effects=keep_effects))

    def release(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.release."""
        self._run(self._steps.roll_back())

    def hold(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.hold."""
        self._run(self._steps.roll_back())

    def _run(self, steps: Steps[R]) -> R:
        was_clean, self._clean = self._clean or self._connection is None, False
        try:
            result = drive(steps, self._perform)
            self._clean = was_clean
        except LeaseLostError:
            self._clean = was_clean
            raise
        finally:
            if not self._steps.open and not self._shown:
                # At once: what is left of the exchange may take as long as its client's line is slow.
                self._give_back()
        self._shown = self._shown or self._steps.open
        return result

    def _perform(self, step: Step) -> Rows:
        if self._connection is None:
            self._connection = self._connections.acquire()
        return self._store.perform(self._connection, step, in_transaction=True)

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._shown = False
            self._store.give_back(connection, clean=self._clean)
