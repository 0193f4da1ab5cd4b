"""A PostgreSQL store in blocking calls, whatever the driver; postgresql_async.py has the theory of operation."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import LeaseLostError, StoreError
from twicesafe.stores.contract import AuditEntry, Outstanding, Swept, Transaction
from twicesafe.stores.postgresql import AGAIN, ENDS, ROUNDS, Failure, ended, in_doubt, parts, store_error, waited_for
from twicesafe.stores.postgresql_notices import HINT, notice
from twicesafe.stores.sql.daily import DailyQueries, days_due, keep_days
from twicesafe.stores.sql.leased import SqlSteps
from twicesafe.stores.sql.schema import apply_schema, check_schema
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.sql.transactional import ENDED_EARLY, SqlTransactionSteps
from twicesafe.stores.steps import Rows, Statement, Step, Steps, drive, once

R = TypeVar("R")


class Connections(Protocol):
    """A driver and its pool."""

    revokes: bool
    """Whether a handler that kept its connection can no longer use it once it was released."""

    def acquire(self) -> Any:
        """A connection that begins no transaction by itself, or StoreUnavailableError."""

    def release(self, connection: Any) -> None:
        """Give it back."""

    def send(self, connection: Any, before: tuple[Statement, ...], statement: Statement) -> Rows:
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

    def close(self) -> None:
        """Close the pool, if it is the store's own."""


class PostgresqlStore:
    """A Store over some driver's connections."""

    transactional = True

    def __init__(self, connections: Connections, sql: Queries, url: str) -> None:
        self._connections: Final = connections
        self._sql: Final = sql
        self._url: Final = url
        self._steps: Final = SqlSteps(sql)

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
        """See Session.complete. `keep_effects` means nothing here."""
        self._run(self._steps.complete(own, response, key_us, body_us))

    def release(self, own: Ownership) -> None:
        """See Session.release."""
        self._run(self._steps.release(own))

    def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        self._run(self._steps.hold(own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """See Store.transaction. Its `connection` is the driver's, whose `transaction()` makes savepoints."""
        return PostgresqlTransaction(self, self._connections, SqlTransactionSteps(self._sql, self._steps))

    def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return self._run(self._steps.read(digest))

    def glance(self, digest: bytes) -> Found:
        """See Glances.glance."""
        return self._run(self._steps.glance(digest))

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return self._run(self._steps.settle(own, response, key_us, body_us))

    def now(self) -> Instant:
        """See Store.now."""
        return self._run(self._steps.now())

    def purge(self, limit: int = 1000) -> int:
        """See Store.purge. In the daily layout it also makes the days to come, and drops those that are over."""
        touched = self._run(self._steps.purge(limit))
        if isinstance(self._sql, DailyQueries) and touched < limit:
            self._keep_days(self._sql)
        return touched

    def _keep_days(self, sql: DailyQueries) -> None:
        """By many at once: what another one does first fails here, and is no failure as long as things move on."""
        failure: StoreError | None = None
        before: list[tuple[object, ...]] = []
        while due := self._run(days_due(sql)):
            if failure is not None and due == before:
                raise failure
            before = due
            try:
                self._run(keep_days(sql))
            except StoreError as error:
                failure = error

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

    def hint(self) -> None:
        """See Hints.hint."""
        with suppress(StoreError):
            self.ask(notice(HINT))

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

    def ask(self, statement: Statement) -> Rows:
        """Perform one statement of the store's, for those whose transactions are elsewhere."""
        return self._run(once(statement))

    def tell_of(self, statement: Statement, recorded: Rows) -> None:
        """Wake those who wait for a key whose record, now committed, answered this; on a connection of the pool."""
        digest = waited_for(statement, recorded)
        if digest is not None:
            # Who is not reached looks by itself, later.
            with suppress(StoreError):
                self.ask(notice(digest.hex()))

    def _run(self, steps: Steps[R]) -> R:
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
        """Send it, and say what a failure means. Outside a transaction it is sent again when the server asks."""
        before, statement = parts(step)
        rounds = 1 if in_transaction or before else ROUNDS
        while True:
            rounds -= 1
            try:
                rows = self._connections.send(connection, before, statement)
            except Exception as error:
                failure = self._connections.failure(error)
                if failure is None:
                    raise
                if rounds and failure.sqlstate in AGAIN:
                    continue
                doubtful = in_doubt(statement, in_transaction=in_transaction)
                raise store_error(failure, self._url, doubtful=doubtful) from error
            if not in_transaction and (digest := waited_for(statement, rows)) is not None:
                self.tell(connection, digest)
            return rows

    def tell(self, connection: Any, digest: bytes) -> None:
        """Wake those who wait for a key that is settled and committed. Who is not reached looks by itself, later."""
        try:
            self._connections.send(connection, (), notice(digest.hex()))
        except Exception as error:
            self._connections.broken(connection)
            if self._connections.failure(error) is None:
                raise

    def give_back(self, connection: Any, *, clean: bool) -> None:
        """For others to take, rolled back first where it is not clean."""
        if clean:
            self._connections.release(connection)
        else:
            self._clean(connection)

    def _clean(self, connection: Any) -> None:
        connections = self._connections
        rollback = self._sql("rollback")
        try:
            connections.begun(connection, open=False)
            connections.send(connection, (), ended(rollback, connections.reset_sql(connection)))
        except Exception as error:
            connections.broken(connection)
            if connections.failure(error) is None:
                raise
        finally:
            connections.release(connection)


class PostgresqlTransaction:
    """One transaction; a context manager, for one thread at a time."""

    def __init__(self, store: PostgresqlStore, connections: Connections, steps: SqlTransactionSteps) -> None:
        self._store = store
        self._connections = connections
        self._steps = steps
        self._connection: Any = None
        self._clean = self._shown = False
        self._waited_for: bytes | None = None

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
        """See Transaction.commit."""
        self._refuse_if_ended()
        self._run(self._steps.commit())

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return self._run(self._steps.claim(claim))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """There is no lease: the lock of the key lasts as long as the transaction."""

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance. RuntimeError where the phase has ended the transaction itself."""
        self._refuse_if_ended()
        self._run(self._steps.advance(own, seen, point, data))

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._refuse_if_ended()
        self._run(self._steps.start_answer(own, head))

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete. RuntimeError where the handler has ended the transaction itself."""
        self._refuse_if_ended()
        self._run(self._steps.complete(own, response, key_us, body_us, keep_effects=keep_effects))

    def release(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.release."""
        self._run(self._steps.roll_back())

    def hold(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.hold."""
        self._run(self._steps.roll_back())

    def _refuse_if_ended(self) -> None:
        if self._steps.open and self._connection is not None and self._connections.ended_early(self._connection):
            raise RuntimeError(ENDED_EARLY)

    def _run(self, steps: Steps[R]) -> R:
        was_open = self._steps.open
        was_clean, self._clean = self._clean or self._connection is None, False
        try:
            result = drive(steps, self._perform)
            self._clean = was_clean
        except LeaseLostError:
            self._clean = was_clean
            raise
        finally:
            if not self._steps.open and (self._connections.revokes or not self._shown):
                # At once: what is left of the exchange may take as long as its client's line is slow.
                self._give_back()
        if not was_open and self._steps.open:
            self._connections.begun(self._connection, open=True)
            self._shown = True
        return result

    def _perform(self, step: Step) -> Rows:
        if self._connection is None:
            self._connection = self._connections.acquire()
        if type(step) is Statement and step.name in ENDS:
            self._connections.begun(self._connection, open=False)
            digest, self._waited_for = self._waited_for, None
            end = ended(step, self._connections.reset_sql(self._connection))
            rows = self._store.perform(self._connection, end, in_transaction=True)
            if digest is not None and step.name == "commit":
                self._store.tell(self._connection, digest)
            return rows
        rows = self._store.perform(self._connection, step, in_transaction=True)
        if type(step) is Statement and step.name == "record":
            self._waited_for = waited_for(step, rows)
        return rows

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._shown = False
            self._store.give_back(connection, clean=self._clean)
