"""Transactions of Django's connections, as twicesafe.stores.joined wants them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

from django.db import connections, transaction  # type: ignore[import-untyped]
from django.db.backends.base.base import BaseDatabaseWrapper  # type: ignore[import-untyped]
from django.db.utils import Error, IntegrityError, InterfaceError, OperationalError  # type: ignore[import-untyped]

from twicesafe.core.record import Instant, Micros, Ownership
from twicesafe.errors import CommitRefusedError, StoreError, StoreUnavailableError
from twicesafe.stores.connecting import no_entry
from twicesafe.stores.contract import Transaction
from twicesafe.stores.joined import AskedAgainError, JoinedTransaction, Turn
from twicesafe.stores.postgresql import AGAIN, Failure, queries, store_error
from twicesafe.stores.postgresql_sync import PostgresqlStore
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.sqlite_connection import SqliteFile, as_it_is
from twicesafe.stores.steps import Rows, Statement

INSIDE: Final = (
    "an atomic block of the database {alias!r} is open already, so what twicesafe commits would wait for it: put "
    "ATOMIC_REQUESTS and @atomic inside of what twicesafe wraps, and in tests use TransactionTestCase"
)
BROKEN: Final = (
    "a statement of the handler's failed, or it asked for a rollback, so there is nothing to commit: everything was "
    "rolled back. Put what may fail into an atomic() of its own"
)


class DjangoWork:
    """See Work."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._wrapper: BaseDatabaseWrapper | None = None
        self._atomic: transaction.Atomic | None = None
        self._opened = False

    @property
    def shown(self) -> Any:
        """See Work.shown."""
        return self._wrapper

    @property
    def open(self) -> bool:
        """See Work.open."""
        return self._atomic is not None

    def begin(self) -> None:
        """See Work.begin."""
        wrapper = connections[self._using]
        if wrapper.in_atomic_block:
            raise RuntimeError(INSIDE.format(alias=self._using))
        self._wrapper, self._opened = wrapper, wrapper.connection is None
        atomic = transaction.atomic(using=self._using, durable=True)
        try:
            self._take_turn()
            try:
                atomic.__enter__()
            except (Error, OSError) as error:
                raise no_entry(f"the database {self._using!r}", origin(error)) from error
            self._atomic = atomic
            self._prepare(wrapper)
        except BaseException as error:
            self.roll_back()
            self._tell(error, "begin")
            raise

    def send(self, *statements: Statement) -> Rows:
        """See Work.send."""
        assert self._wrapper is not None
        rows: Rows = ()
        for statement in statements:
            try:
                rows = perform(self._wrapper, statement)
            except Exception as error:
                self._tell(error, statement.name)
                raise
        return rows

    def ended_early(self) -> bool:
        """See Work.ended_early."""
        wrapper = self._wrapper
        return wrapper is None or wrapper.closed_in_transaction or not wrapper.in_atomic_block

    def flush(self) -> None:
        """See Work.flush. Models are written when they are saved; what is left is what failed."""
        assert self._wrapper is not None
        if self._wrapper.needs_rollback:
            raise StoreUnavailableError(BROKEN)

    def commit(self) -> None:
        """See Work.commit. A hook of on_commit() that fails is logged by Django, and does not undo the answer."""
        wrapper = self._wrapper
        assert wrapper is not None
        assert self._atomic is not None
        atomic, self._atomic = self._atomic, None
        hooks, wrapper.run_on_commit = wrapper.run_on_commit, []
        try:
            atomic.__exit__(None, None, None)
            # A hook may take long, and may begin a transaction of its own: nobody's turn waits for it.
            self._end_turn()
            wrapper.run_on_commit = [(*hook[:2], True) for hook in hooks]
            wrapper.run_and_clear_commit_hooks()
        except Exception as error:
            self._tell(error, "commit")
            raise
        finally:
            self._leave()

    def roll_back(self) -> None:
        """See Work.roll_back."""
        atomic, self._atomic = self._atomic, None
        try:
            if atomic is not None:
                undone = StoreError("rolled back")
                atomic.__exit__(StoreError, undone, None)
        except Error:
            # The connection is broken, and Django knows.
            pass
        finally:
            self._leave()

    def _leave(self) -> None:
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None:
            done(wrapper, opened=self._opened)
        self._end_turn()

    def _tell(self, error: BaseException, name: str) -> None:
        """Raise what a database's error means."""
        meant = self._error(error, name) if isinstance(error, Exception) else None
        if meant is not None:
            raise meant from origin(error)

    def _take_turn(self) -> None:
        """All at once."""

    def _end_turn(self) -> None:
        """All at once."""

    def _prepare(self, wrapper: BaseDatabaseWrapper) -> None:
        """Nothing to prepare."""

    def _error(self, error: Exception, name: str) -> StoreError | None:
        raise NotImplementedError


def perform(wrapper: BaseDatabaseWrapper, statement: Statement) -> Rows:
    """Perform a statement, beside Django's log of queries: that would show bodies and owner tokens (R22)."""
    with wrapper.wrap_database_errors, closing(wrapper.create_cursor()) as cursor:
        if not statement.parameters and not statement.returns:
            for text in statement.text.split("; "):
                cursor.execute(text)
            return ()
        cursor.execute(statement.text, statement.parameters)
        if statement.returns:
            rows: Rows = cursor.fetchall()
            return rows
        return ((),) * cursor.rowcount if statement.writes else ()


def done(wrapper: BaseDatabaseWrapper, *, opened: bool) -> None:
    """A connection that was opened for this is closed as Django would close it at the end of a request."""
    if opened or wrapper.errors_occurred:
        wrapper.close_if_unusable_or_obsolete()


def origin(error: BaseException) -> BaseException:
    """The driver's own error."""
    return error.__cause__ if isinstance(error, Error) and error.__cause__ is not None else error


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def leased_postgresql(using: str, now_sql: str | None) -> LeasedOnPostgresql:
    return LeasedOnPostgresql(using, queries(Placeholder.PERCENT, now_sql))


def on_postgresql(leased: LeasedOnPostgresql) -> Transaction:
    return JoinedTransaction(leased.sql, PostgresqlWork(leased.using), leased.ask, leased.tell_of)


class LeasedOnPostgresql(PostgresqlStore):
    """The leased way on the connection of each thread."""

    def __init__(self, using: str, sql: Queries) -> None:
        super().__init__(DjangoConnections(using), sql, "postgresql://...")
        self.using = using
        self.sql = sql

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew. In a thread that serves no request nobody else would close what it opened."""
        wrapper = connections[self.using]
        opened = wrapper.connection is None
        try:
            super().renew(own, lease_us)
        finally:
            if opened:
                wrapper.close()


class DjangoConnections:
    """See Connections. There is one for each thread."""

    revokes = False

    def __init__(self, using: str) -> None:
        self._using = using
        self._opened: set[BaseDatabaseWrapper] = set()

    def acquire(self) -> Any:
        """See Connections.acquire."""
        wrapper = connections[self._using]
        if wrapper.in_atomic_block:
            raise RuntimeError(INSIDE.format(alias=self._using))
        if wrapper.connection is None:
            self._opened.add(wrapper)
        try:
            wrapper.ensure_connection()
        except (Error, OSError) as error:
            self._opened.discard(wrapper)
            raise no_entry(f"the database {self._using!r}", origin(error)) from error
        if not wrapper.get_autocommit():
            self.release(wrapper)
            raise RuntimeError(f"the database {self._using!r} needs AUTOCOMMIT, which is Django's default")
        return wrapper

    def release(self, connection: Any) -> None:
        """See Connections.release."""
        opened = connection in self._opened
        self._opened.discard(connection)
        done(connection, opened=opened)

    def send(self, connection: Any, before: tuple[Statement, ...], statement: Statement) -> Rows:
        """See Connections.send."""
        for first in before:
            perform(connection, first)
        return perform(connection, statement)

    def failure(self, error: Exception) -> Failure | None:
        """See Connections.failure."""
        return failure_of(error)

    def reset_sql(self, connection: object) -> str:  # noqa: ARG002 - the same for all
        """See Connections.reset_sql. The connection stays this thread's."""
        return ""

    def begun(self, connection: object, *, open: bool) -> None:  # noqa: A002 - the one word for it
        """No handler gets one in a transaction of this kind."""

    def ended_early(self, connection: object) -> bool:  # noqa: ARG002 - the same for all
        """No handler gets one in a transaction of this kind."""
        return False

    def broken(self, connection: Any) -> None:
        """See Connections.broken."""
        connection.close()

    def close(self) -> None:
        """The connections are Django's."""


def failure_of(error: Exception) -> Failure | None:
    """See Connections.failure."""
    if isinstance(error, Error):
        driver_error = origin(error)
        sqlstate: str | None = getattr(driver_error, "sqlstate", None)
        if sqlstate is not None:
            return Failure(sqlstate, str(driver_error))
        if isinstance(error, OperationalError | InterfaceError):
            return Failure(None, str(driver_error))
        if isinstance(error, transaction.TransactionManagementError):
            return Failure("25P02", BROKEN)
    return Failure(None, str(error)) if isinstance(error, OSError) else None


class PostgresqlWork(DjangoWork):
    """See Work."""

    def _error(self, error: Exception, name: str) -> StoreError | None:
        failure = failure_of(error)
        if failure is None:
            return None
        meant = store_error(failure, "postgresql://...", doubtful=name == "commit")
        return AskedAgainError(str(meant)) if failure.sqlstate in AGAIN else meant


# --- SQLite ----------------------------------------------------------------------------------------------------------


class Files:
    """The file of a database, under the name that it has now: a test runner gives it another."""

    def __init__(self, using: str, busy_timeout: timedelta, clock: Callable[[], Instant]) -> None:
        self.using = using
        self._busy_timeout = busy_timeout
        self._clock = clock
        self._file: SqliteFile | None = None
        self._name = ""

    def path(self) -> str:
        """Where it is."""
        return str(connections[self.using].settings_dict["NAME"])

    def now(self) -> SqliteFile:
        """The file. ConfigurationError where the database is in memory."""
        if self._file is None or self.path() != self._name:
            self._name = self.path()
            self._file = SqliteFile(self._name, self._busy_timeout, self._clock, as_it_is)
        return self._file


class StoresOnFile:
    """A store on the file."""

    def __init__(self, files: Files, make: Callable[[str], Any]) -> None:
        self._files = files
        self._make = make
        self._store: Any = None
        self._on: SqliteFile | None = None

    def now(self) -> Any:
        """The store on the file that it is now. One on another file has nothing under way any more."""
        file = self._files.now()
        if self._on is not file:
            self._on, self._store = file, self._make(self._files.path())
        return self._store


def on_sqlite(files: Files, turn: Turn, ask: Callable[[Statement], Rows]) -> Transaction:
    return JoinedTransaction(_PERCENT, SqliteWork(files, turn), lambda statement: ask(asked(statement)))


_PERCENT: Final = Queries(Dialect.SQLITE, Placeholder.PERCENT)
"""Django's own style, on every database."""


def asked(statement: Statement) -> Statement:
    """In the style of the other store."""
    return statement._replace(text=statement.text.replace("%s", "?").replace("%%", "%"))


class SqliteWork(DjangoWork):
    """See Work."""

    def __init__(self, files: Files, turn: Turn) -> None:
        super().__init__(files.using)
        self._file = files.now()
        self._turn = turn
        self._taken = False

    def _take_turn(self) -> None:
        self._turn.take()
        self._taken = True

    def _end_turn(self) -> None:
        if self._taken:
            self._taken = False
            self._turn.end()

    def _prepare(self, wrapper: BaseDatabaseWrapper) -> None:
        """The store's clock, and the write lock from the beginning, whatever the settings begin with."""
        driver: Any = wrapper.connection
        driver.create_function("twicesafe_now", 0, self._file.clock)
        with wrapper.wrap_database_errors, closing(wrapper.create_cursor()) as cursor:
            if driver.in_transaction:
                cursor.execute("ROLLBACK")
            cursor.execute("BEGIN IMMEDIATE")

    def ended_early(self) -> bool:
        """See Work.ended_early."""
        driver: Any = None if self._wrapper is None else self._wrapper.connection
        return super().ended_early() or driver is None or not driver.in_transaction

    def _error(self, error: Exception, name: str) -> StoreError | None:
        if isinstance(error, transaction.TransactionManagementError):
            return StoreUnavailableError(BROKEN)
        if isinstance(error, Error):
            driver_error: Any = origin(error)
            if isinstance(error, IntegrityError) and name == "commit":
                return CommitRefusedError(f"a constraint refused the commit, which was rolled back: {driver_error}")
            return self._file.error(driver_error, name, committing=name == "commit")
        return None
