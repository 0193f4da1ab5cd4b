"""What depends on the database and its driver, where transactions are SQLAlchemy's."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, exc
from sqlalchemy.util import await_only

from twicesafe.errors import StoreError, StoreUnavailableError
from twicesafe.stores.connecting import no_entry
from twicesafe.stores.contract import Transaction
from twicesafe.stores.joined import AskedAgainError, JoinedTransaction, no_turn
from twicesafe.stores.postgresql import AGAIN, Failure, queries, store_error
from twicesafe.stores.postgresql_sync import PostgresqlStore
from twicesafe.stores.sql.statements import Placeholder, Queries
from twicesafe.stores.sqlalchemy_work import SqlalchemyWork, origin, perform, perform_all
from twicesafe.stores.sqlite_connection import SqliteFile
from twicesafe.stores.steps import Rows, Statement

PLACEHOLDERS: Final = {
    "pyformat": Placeholder.PERCENT,
    "format": Placeholder.PERCENT,
    "numeric_dollar": Placeholder.NUMBER,
    "qmark": Placeholder.QUESTION_MARK,
}


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def postgresql(engine: Engine, now_sql: str | None) -> tuple[LeasedOnPostgresql, PostgresqlKind]:
    sql = queries(PLACEHOLDERS[engine.dialect.paramstyle], now_sql)
    url = engine.url.render_as_string(hide_password=True).replace(engine.url.drivername, "postgresql", 1)
    return LeasedOnPostgresql(EngineConnections(engine, url), sql, url), PostgresqlKind(engine, url)


def on_postgresql(leased: LeasedOnPostgresql, work: SqlalchemyWork) -> Transaction:
    return JoinedTransaction(leased.sql, work, leased.ask, leased.tell_of)


class LeasedOnPostgresql(PostgresqlStore):
    """The leased way on an engine's connections."""

    def __init__(self, connections: EngineConnections, sql: Queries, url: str) -> None:
        super().__init__(connections, sql, url)
        self.sql = sql


class EngineConnections:
    """See Connections. Whatever isolation level the engine has, these commit each statement by itself."""

    revokes = True

    def __init__(self, engine: Engine, url: str) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._url = url

    def acquire(self) -> Any:
        """See Connections.acquire."""
        try:
            return self._engine.connect()
        except (exc.DBAPIError, exc.TimeoutError, OSError) as error:
            raise no_entry(self._url, origin(error)) from origin(error)

    def release(self, connection: Any) -> None:
        """See Connections.release."""
        connection.close()

    def send(self, connection: Any, before: tuple[Statement, ...], statement: Statement) -> Rows:
        """See Connections.send."""
        for first in before:
            perform(connection, first)
        return perform(connection, statement)

    def failure(self, error: Exception) -> Failure | None:
        """See Connections.failure."""
        return failure_of(error)

    def reset_sql(self, connection: object) -> str:  # noqa: ARG002 - the same for all
        """See Connections.reset_sql. The engine's pool does as it was told."""
        return ""

    def begun(self, connection: object, *, open: bool) -> None:  # noqa: A002 - the one word for it
        """No handler gets one of these."""

    def ended_early(self, connection: object) -> bool:  # noqa: ARG002 - the same for all
        """No handler gets one of these."""
        return False

    def broken(self, connection: Any) -> None:
        """See Connections.broken."""
        if not connection.closed and not connection.invalidated:
            connection.invalidate()

    def close(self) -> None:
        """The engine is the application's."""


def failure_of(error: Exception) -> Failure | None:
    """See Connections.failure."""
    if isinstance(error, exc.DBAPIError):
        driver_error = origin(error)
        sqlstate: str | None = getattr(driver_error, "sqlstate", None)
        if sqlstate is not None:
            return Failure(sqlstate, str(driver_error))
        if error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError):
            return Failure(None, str(driver_error))
        return None
    if isinstance(error, exc.PendingRollbackError | exc.TimeoutError | exc.ResourceClosedError | OSError):
        return Failure(None, str(error) or type(error).__name__)
    return None


class PostgresqlKind:
    """See Kind."""

    def __init__(self, engine: Engine, url: str) -> None:
        self._url = url
        self.perform = by_psycopg if takes_all(engine) else perform_all

    def take_turn(self) -> None:
        """All at once."""

    def end_turn(self) -> None:
        """All at once."""

    def prepare(self, connection: Connection) -> None:
        """The engine's isolation level is right: SqlTransactionSteps finds out which it is."""

    def is_open(self, connection: Connection) -> bool:
        """The record's statement asks the server on the way."""
        return connection.in_transaction()

    def error(self, error: Exception, statement: str, *, writes: bool = False) -> StoreError | None:  # noqa: ARG002
        """See Kind.error."""
        failure = failure_of(error)
        if failure is None:
            return None
        meant = store_error(failure, self._url, doubtful=statement == "commit")
        return AskedAgainError(str(meant)) if failure.sqlstate in AGAIN else meant

    def refused(self, error: Exception) -> bool:
        """See Kind.refused."""
        failure = failure_of(error)
        return failure is not None and failure.sqlstate is not None and failure.sqlstate.startswith(("23", "P0"))


def takes_all(engine: Engine) -> bool:
    """Whether the driver can send several statements in one round trip, and SQLAlchemy is not in its way."""
    dialect = engine.dialect
    return dialect.driver == "psycopg" and not dialect.is_async and bool(dialect.loaded_dbapi.Pipeline.is_supported())


def by_psycopg(connection: Connection, statements: tuple[Statement, ...]) -> Rows:
    """See Kind.perform. SQLAlchemy has no word for pipelines, so its events do not tell of these statements."""
    driver, library = connection.connection.driver_connection, connection.dialect.loaded_dbapi
    assert driver is not None
    cursor = driver.cursor()
    try:
        # With autocommit a pipeline would look like the transaction that there is not.
        with nullcontext() if len(statements) == 1 or driver.autocommit else driver.pipeline():
            for statement in statements:
                cursor.execute(statement.text, statement.parameters)
        rows: Rows = cursor.fetchall() if statements[-1].returns else ((),) * cursor.rowcount
    except library.Error as error:
        lost: bool = driver.closed
        if lost:
            connection.invalidate(error)
        raise exc.DBAPIError(None, None, error, hide_parameters=True, connection_invalidated=lost) from error
    return rows


# --- SQLite ----------------------------------------------------------------------------------------------------------


def path_of(engine: Engine) -> str:
    # What is no file SqliteFile refuses.
    return engine.url.database or ":memory:"


class AnyTurn(Protocol):
    """One writer at a time, and the next one woken at once; SQLite itself would let the lucky one in."""

    def take(self) -> None: ...
    def end(self) -> None: ...


class TasksTurn:
    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        """A lock belongs to a loop. Should two loops use one store, SQLite's own lock stands between them."""

    def take(self) -> None:
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        try:
            await_only(self._taken(lock))
        except TimeoutError:
            raise no_turn(self._timeout) from None

    async def _taken(self, lock: asyncio.Lock) -> None:
        # asyncio.wait_for of Python 3.11 forgets a cancellation that comes together with the turn.
        async with asyncio.timeout(self._timeout):
            await lock.acquire()

    def end(self) -> None:
        self._locks[asyncio.get_running_loop()].release()


class SqliteKind:
    """See Kind."""

    def __init__(self, file: SqliteFile, turn: AnyTurn) -> None:
        self._file = file
        self.take_turn = turn.take
        self.end_turn = turn.end

    def prepare(self, connection: Connection) -> None:
        """The store's clock, and the write lock from the beginning, whatever the engine begins with by itself."""
        if connection.info.get("twicesafe") is not self._file:
            connection.connection.create_function("twicesafe_now", 0, self._file.clock)
            connection.info["twicesafe"] = self._file
        if self._driver(connection).in_transaction:
            connection.exec_driver_sql("ROLLBACK")
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def perform(self, connection: Connection, statements: tuple[Statement, ...]) -> Rows:
        """See Kind.perform."""
        return perform_all(connection, statements)

    def is_open(self, connection: Connection) -> bool:
        """See Kind.is_open."""
        return not connection.closed and bool(self._driver(connection).in_transaction)

    def _driver(self, connection: Connection) -> Any:
        return connection.connection.driver_connection

    def error(self, error: Exception, statement: str, *, writes: bool = False) -> StoreError | None:  # noqa: ARG002
        """See Kind.error."""
        if isinstance(error, exc.DBAPIError):
            driver_error: Any = origin(error)
            return self._file.error(driver_error, statement, committing=statement == "commit")
        if isinstance(error, exc.TimeoutError):
            return StoreUnavailableError(f"the engine's pool gave no connection, and nothing was changed: {error}")
        if isinstance(error, exc.PendingRollbackError):
            return StoreUnavailableError(f"SQLite has rolled the transaction back by itself: {type(error).__name__}")
        return None

    def refused(self, error: Exception) -> bool:
        """See Kind.refused."""
        return isinstance(error, exc.IntegrityError)
