"""Records beside your models by way of Django 5: the handler's ORM work is the transaction, on PostgreSQL or SQLite.

Claim, everything that the handler does on the database of one alias, and the answer are one `transaction.atomic`. What
the ORM does in the same thread is part of it by itself; nothing has to be handed around.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from threading import Lock
from typing import Any, Final, TypeVar
from weakref import WeakSet

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections, transaction  # type: ignore[import-untyped]
from django.db.backends.base.base import BaseDatabaseWrapper  # type: ignore[import-untyped]
from django.db.utils import Error, IntegrityError, InterfaceError, OperationalError  # type: ignore[import-untyped]

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.record import Instant
from twicesafe.errors import CommitRefusedError, ConfigurationError, StoreError, StoreUnavailableError
from twicesafe.stores.contract import Transaction
from twicesafe.stores.joined import AskedAgainError, JoinedStore, JoinedTransaction
from twicesafe.stores.joined_async import AsyncJoinedStore, CarriedStore, CarriedTransaction
from twicesafe.stores.postgresql import AGAIN, Failure, no_entry, queries, store_error
from twicesafe.stores.postgresql_sync import PostgresqlStore
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.sqlite import DEFAULT_BUSY_TIMEOUT, AsyncSqliteStore, SqliteStore
from twicesafe.stores.sqlite_connection import SqliteFile, as_it_is, host_clock
from twicesafe.stores.steps import Rows, Statement

__all__ = ["AsyncDjangoStore", "DjangoStore"]

R = TypeVar("R")

INSIDE: Final = (
    "an atomic block of the database {alias!r} is open already, so what twicesafe commits would wait for it: put "
    "ATOMIC_REQUESTS and @atomic inside of what twicesafe wraps, and in tests use TransactionTestCase"
)
BROKEN: Final = (
    "a statement of the handler's failed, or it asked for a rollback, so there is nothing to commit: everything was "
    "rolled back. Put what may fail into an atomic() of its own"
)


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
            files = _Files(using, busy_timeout, clock)
            stores = _Stores(files, lambda path: SqliteStore(path, busy_timeout=busy_timeout, clock=clock))
            turn = _Turn(busy_timeout.total_seconds())
            super().__init__(stores.now, lambda: _on_sqlite(files, turn, stores.now().ask))
        else:
            leased = _leased_postgresql(using, now_sql)
            super().__init__(lambda: leased, lambda: _on_postgresql(leased))


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
            files = _Files(using, busy_timeout, clock)
            blocking = _Stores(files, lambda path: SqliteStore(path, busy_timeout=busy_timeout, clock=clock))
            stores = _Stores(files, lambda path: AsyncSqliteStore(path, busy_timeout=busy_timeout, clock=clock))
            turn = _Turn(busy_timeout.total_seconds())
            self._blocking: _Stores | None = blocking
            super().__init__(stores.now, lambda: _AsyncTransaction(_on_sqlite(files, turn, blocking.now().ask)))
        else:
            leased = _leased_postgresql(using, now_sql)
            carried = CarriedStore(leased, _in_any_thread)
            self._blocking = None
            super().__init__(lambda: carried, lambda: _AsyncTransaction(_on_postgresql(leased)))

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
                    executor.shutdown(wait=False)

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
    return vendor


# --- transactions ----------------------------------------------------------------------------------------------------


class _Work:
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
                raise no_entry(f"the database {self._using!r}", _origin(error)) from error
            self._atomic = atomic
            self._prepare(wrapper)
        except BaseException as error:
            self.roll_back()
            self._tell(error, "begin")
            raise

    def send(self, statement: Statement) -> Rows:
        """See Work.send."""
        assert self._wrapper is not None
        try:
            return _perform(self._wrapper, statement)
        except Exception as error:
            self._tell(error, statement.name)
            raise

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
        assert self._wrapper is not None
        assert self._atomic is not None
        atomic, self._atomic = self._atomic, None
        self._wrapper.run_on_commit = [(*hook[:2], True) for hook in self._wrapper.run_on_commit]
        try:
            atomic.__exit__(None, None, None)
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
            _done(wrapper, opened=self._opened)
        self._end_turn()

    def _tell(self, error: BaseException, name: str) -> None:
        """Raise what a database's error means."""
        meant = self._error(error, name) if isinstance(error, Exception) else None
        if meant is not None:
            raise meant from _origin(error)

    def _take_turn(self) -> None:
        """All at once."""

    def _end_turn(self) -> None:
        """All at once."""

    def _prepare(self, wrapper: BaseDatabaseWrapper) -> None:
        """Nothing to prepare."""

    def _error(self, error: Exception, name: str) -> StoreError | None:
        raise NotImplementedError


def _perform(wrapper: BaseDatabaseWrapper, statement: Statement) -> Rows:
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


def _done(wrapper: BaseDatabaseWrapper, *, opened: bool) -> None:
    """A connection that was opened for this is closed as Django would close it at the end of a request."""
    if opened or wrapper.errors_occurred:
        wrapper.close_if_unusable_or_obsolete()


def _origin(error: BaseException) -> BaseException:
    """The driver's own error."""
    return error.__cause__ if isinstance(error, Error) and error.__cause__ is not None else error


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def _leased_postgresql(using: str, now_sql: str | None) -> _LeasedPostgresqlStore:
    return _LeasedPostgresqlStore(using, queries(Placeholder.PERCENT, now_sql))


def _on_postgresql(leased: _LeasedPostgresqlStore) -> Transaction:
    return JoinedTransaction(leased.sql, _PostgresqlWork(leased.using), leased.ask, leased.tell_of)


class _LeasedPostgresqlStore(PostgresqlStore):
    """The leased way on the connection of each thread."""

    def __init__(self, using: str, sql: Queries) -> None:
        super().__init__(DjangoConnections(using), sql, "postgresql://...")
        self.using = using
        self.sql = sql


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
            raise no_entry(f"the database {self._using!r}", _origin(error)) from error
        if not wrapper.get_autocommit():
            self.release(wrapper)
            raise RuntimeError(f"the database {self._using!r} needs AUTOCOMMIT, which is Django's default")
        return wrapper

    def release(self, connection: Any) -> None:
        """See Connections.release."""
        opened = connection in self._opened
        self._opened.discard(connection)
        _done(connection, opened=opened)

    def send(self, connection: Any, before: tuple[Statement, ...], statement: Statement) -> Rows:
        """See Connections.send."""
        for first in before:
            _perform(connection, first)
        return _perform(connection, statement)

    def failure(self, error: Exception) -> Failure | None:
        """See Connections.failure."""
        return _failure(error)

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


def _failure(error: Exception) -> Failure | None:
    """See Connections.failure."""
    if isinstance(error, Error):
        origin = _origin(error)
        sqlstate: str | None = getattr(origin, "sqlstate", None)
        if sqlstate is not None:
            return Failure(sqlstate, str(origin))
        if isinstance(error, OperationalError | InterfaceError):
            return Failure(None, str(origin))
        if isinstance(error, transaction.TransactionManagementError):
            return Failure("25P02", BROKEN)
    return Failure(None, str(error)) if isinstance(error, OSError) else None


class _PostgresqlWork(_Work):
    """See Work."""

    def _error(self, error: Exception, name: str) -> StoreError | None:
        failure = _failure(error)
        if failure is None:
            return None
        meant = store_error(failure, "postgresql://...", doubtful=name == "commit")
        return AskedAgainError(str(meant)) if failure.sqlstate in AGAIN else meant


# --- SQLite ----------------------------------------------------------------------------------------------------------


class _Files:
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


class _Stores:
    """A store on the file."""

    def __init__(self, files: _Files, make: Callable[[str], Any]) -> None:
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


class _Turn:
    """One writer at a time, and the next one woken at once; SQLite itself would let the lucky one in."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = Lock()

    def take(self) -> None:
        """Wait for it."""
        if not self._lock.acquire(timeout=self._timeout):
            raise StoreUnavailableError(
                f"another transaction of this process kept the database for {self._timeout:g} s: nothing was changed"
            )

    def end(self) -> None:
        """Let the next one begin."""
        self._lock.release()


def _on_sqlite(files: _Files, turn: _Turn, ask: Callable[[Statement], Rows]) -> Transaction:
    return JoinedTransaction(_PERCENT, _SqliteWork(files, turn), lambda statement: ask(_asked(statement)))


_PERCENT: Final = Queries(Dialect.SQLITE, Placeholder.PERCENT)
"""Django's own style, on every database."""


def _asked(statement: Statement) -> Statement:
    """In the style of the other store."""
    return statement._replace(text=statement.text.replace("%s", "?").replace("%%", "%"))


class _SqliteWork(_Work):
    """See Work."""

    def __init__(self, files: _Files, turn: _Turn) -> None:
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
            origin: Any = _origin(error)
            if isinstance(error, IntegrityError) and name == "commit":
                return CommitRefusedError(f"a constraint refused the commit, which was rolled back: {origin}")
            return self._file.error(origin, name, committing=name == "commit")
        return None
