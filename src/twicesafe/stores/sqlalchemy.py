"""Records beside your tables by way of SQLAlchemy 2: the handler's Session is the transaction, on PostgreSQL or SQLite.

Claim, the handler's ORM work and the answer are one transaction of one Session (or Connection), made by your own
factory on your own engine. With it come your pool, your events and your isolation level.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, event, exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, SessionTransaction, sessionmaker
from sqlalchemy.util import await_only, greenlet_spawn

from twicesafe.core.record import Instant
from twicesafe.errors import CommitRefusedError, ConfigurationError, StoreError, StoreUnavailableError
from twicesafe.stores.contract import Transaction
from twicesafe.stores.joined import AskedAgainError, JoinedStore, JoinedTransaction
from twicesafe.stores.joined_async import AsyncJoinedStore, CarriedStore, CarriedTransaction
from twicesafe.stores.postgresql import AGAIN, Failure, no_entry, queries, store_error
from twicesafe.stores.postgresql_sync import PostgresqlStore
from twicesafe.stores.sql.statements import Placeholder, Queries
from twicesafe.stores.sqlite import DEFAULT_BUSY_TIMEOUT, AsyncSqliteStore, SqliteStore
from twicesafe.stores.sqlite_connection import SqliteFile, as_it_is, host_clock
from twicesafe.stores.steps import Rows, Statement

__all__ = ["AsyncSqlalchemyStore", "SqlalchemyStore"]

R = TypeVar("R")
Database: TypeAlias = "Engine | sessionmaker[Any]"
AsyncDatabase: TypeAlias = "AsyncEngine | async_sessionmaker[Any]"

_PLACEHOLDERS: Final = {
    "pyformat": Placeholder.PERCENT,
    "format": Placeholder.PERCENT,
    "numeric_dollar": Placeholder.NUMBER,
    "qmark": Placeholder.QUESTION_MARK,
}

COMMITTED: Final = (
    "this transaction is committed together with its answer: do not commit it inside the handler. Nothing was "
    "committed. To have the database check something now, flush(); to undo a part, begin_nested()"
)
OVER: Final = (
    "the transaction of this session has ended, so nothing more is done in it. Where the handler rolled it back: undo "
    "a part with begin_nested() instead. Where its answer is recorded: what comes after needs a session of its own"
)


class SqlalchemyStore(JoinedStore):
    """A Store in the database of your engine. Transactions are sessions of your `sessionmaker`, or its connections.

    Given a sessionmaker, whose `bind` is the engine, handlers get a Session; given an Engine, a Connection. Pool,
    time-outs, isolation level and, on SQLite, the durability of a transaction are the engine's. `now_sql` (PostgreSQL)
    and `clock` (SQLite) replace the store's clock; only tests have a reason to set them.
    """

    def __init__(
        self,
        database: Database,
        *,
        busy_timeout: timedelta = DEFAULT_BUSY_TIMEOUT,
        now_sql: str | None = None,
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        engine = _engine_of(database)
        if engine.dialect.name == "sqlite":
            path = _path_of(engine)
            on_file = SqliteStore(path, busy_timeout=busy_timeout, clock=clock)
            file = SqliteFile(path, busy_timeout, clock, as_it_is)
            sqlite = _Sqlite(file, _ThreadsTurn(file.busy_seconds))
            super().__init__(lambda: on_file, lambda: JoinedTransaction(file.sql, _work(database, sqlite), on_file.ask))
        else:
            leased, postgresql = _postgresql(engine, now_sql)
            super().__init__(lambda: leased, lambda: _on_postgresql(leased, _work(database, postgresql)))


class AsyncSqlalchemyStore(AsyncJoinedStore):
    """An AsyncStore in the database of your AsyncEngine. Transactions are sessions of your `async_sessionmaker`.

    Given an async_sessionmaker, whose `bind` is the engine, handlers get an AsyncSession; given an AsyncEngine, an
    AsyncConnection. See SqlalchemyStore for the rest.
    """

    def __init__(
        self,
        database: AsyncDatabase,
        *,
        busy_timeout: timedelta = DEFAULT_BUSY_TIMEOUT,
        now_sql: str | None = None,
        clock: Callable[[], Instant] = host_clock,
    ) -> None:
        engine = _engine_of(database)
        if engine.dialect.name == "sqlite":
            path = _path_of(engine)
            on_file = AsyncSqliteStore(path, busy_timeout=busy_timeout, clock=clock)
            file = SqliteFile(path, busy_timeout, clock, as_it_is)
            sqlite = _Sqlite(file, _TasksTurn(file.busy_seconds))

            def ask(statement: Statement) -> Rows:
                return await_only(on_file.ask(statement))

            super().__init__(
                lambda: on_file,
                lambda: CarriedTransaction(JoinedTransaction(file.sql, _work(database, sqlite), ask), _in_greenlet),
            )
        else:
            leased, postgresql = _postgresql(engine, now_sql)
            carried = CarriedStore(leased, _in_greenlet)
            super().__init__(
                lambda: carried,
                lambda: CarriedTransaction(_on_postgresql(leased, _work(database, postgresql)), _in_greenlet),
            )


async def _in_greenlet(call: Callable[[], R]) -> R:
    """See Carry. A call that comes to its end without waiting may, so none is required to."""
    return await greenlet_spawn(call)


def _engine_of(database: Any) -> Engine:
    """The blocking engine behind it. ConfigurationError where it is of another kind, or not the whole database."""
    bind = database
    if isinstance(database, sessionmaker | async_sessionmaker):
        bind = database.kw.get("bind")
        if database.kw.get("twophase") or database.kw.get("binds"):
            raise ConfigurationError(
                "a session with twophase or binds spans several databases, and a transaction of twicesafe is one: give "
                "the store a sessionmaker of the database that holds the records, with bind=engine alone"
            )
    engine = bind.sync_engine if isinstance(bind, AsyncEngine) else bind
    if not isinstance(engine, Engine):
        raise ConfigurationError(
            f"a SQLAlchemy store needs an engine or a sessionmaker(bind=engine), not {type(bind).__name__}"
        )
    if engine.dialect.name not in ("postgresql", "sqlite"):
        raise ConfigurationError(f"a SQLAlchemy store works on PostgreSQL and SQLite, not on {engine.dialect.name}")
    if engine.dialect.paramstyle not in _PLACEHOLDERS:
        raise ConfigurationError(
            f"the driver {engine.dialect.driver} is not one that twicesafe knows: use psycopg, asyncpg, pysqlite or "
            "aiosqlite"
        )
    return engine


def _work(database: Any, kind: _Kind) -> _Work:
    """Transactions on what the store was given."""
    return _SessionWork(database, kind) if hasattr(database, "kw") else _ConnectionWork(database, kind)


class _Kind(Protocol):
    """What depends on the database."""

    def take_turn(self) -> None:
        """Wait until this transaction may begin, holding no connection."""

    def end_turn(self) -> None:
        """Let the next one begin."""

    def prepare(self, connection: Connection) -> None:
        """Make of a connection of the pool's one that the store can work with, inside its transaction."""

    def is_open(self, connection: Connection) -> bool:
        """Whether the database has a transaction open, as far as the driver knows."""

    def error(self, error: Exception, statement: str, *, writes: bool = False) -> StoreError | None:
        """What an exception means; None where it is no matter of the database's. `writes` outside a transaction."""

    def refused(self, error: Exception) -> bool:
        """Whether a constraint of the application's own said no."""


class _Work:
    """See Work."""

    def __init__(self, kind: _Kind) -> None:
        self._kind = kind
        self._connection: Connection | None = None
        self._guard = _Guard()
        self._turn = False
        self.shown: Any = None

    @property
    def open(self) -> bool:
        """See Work.open."""
        return self._connection is not None

    def begin(self) -> None:
        """See Work.begin."""
        self._guard = _Guard()
        self._kind.take_turn()
        self._turn = True
        try:
            self._connection = self._connect(self._guard)
            self._kind.prepare(self._connection)
        except BaseException as error:
            self.roll_back()
            self._tell(error, "begin")
            raise

    def send(self, statement: Statement) -> Rows:
        """See Work.send."""
        assert self._connection is not None
        try:
            return _perform(self._connection, statement)
        except Exception as error:
            self._tell(error, statement.name)
            raise

    def ended_early(self) -> bool:
        """See Work.ended_early."""
        return self._connection is None or self._guard.over or not self._kind.is_open(self._connection)

    def flush(self) -> None:
        """See Work.flush."""
        try:
            self._flush()
        except Exception as error:
            if self._kind.refused(error):
                raise CommitRefusedError(
                    f"a constraint refused what the handler wrote, which was rolled back: {_brief(error)}"
                ) from _origin(error)
            self._tell(error, "flush")
            raise

    def commit(self) -> None:
        """See Work.commit."""
        self._guard.ours = True
        try:
            self._commit()
        except Exception as error:
            self._tell(error, "commit")
            raise
        finally:
            self._leave()

    def roll_back(self) -> None:
        """See Work.roll_back."""
        self._guard.ours = True
        self._leave()

    def _leave(self) -> None:
        try:
            self._close()
        except exc.SQLAlchemyError:
            # The connection is broken, and its pool knows.
            pass
        finally:
            self._connection = self.shown = None
            self._guard.over, self._guard.ours = True, False
            if self._turn:
                self._turn = False
                self._kind.end_turn()

    def _tell(self, error: BaseException, name: str) -> None:
        """Raise what a database's error means."""
        meant = self._kind.error(error, name) if isinstance(error, Exception) else None
        if meant is not None:
            raise meant from _origin(error)

    def _connect(self, guard: _Guard) -> Connection:
        raise NotImplementedError

    def _flush(self) -> None:
        """Nothing is held back."""

    def _commit(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class _Guard:
    """Nobody but the store ends a transaction, and nobody goes on with one that has ended."""

    def __init__(self) -> None:
        self.ours = False
        """Whether what happens now is the store's doing."""
        self.over = False

    def watch(self, session: Session) -> None:
        """A session, in its transaction."""
        event.listen(session, "before_commit", self._before_commit)
        event.listen(session, "after_transaction_end", self._after_end)
        event.listen(session, "after_begin", self._after_begin)

    def watch_connection(self, connection: Connection) -> None:
        """A connection, in its transaction."""
        event.listen(connection, "commit", self._refuse_commit)
        event.listen(connection, "rollback", self._note_end)
        event.listen(connection, "begin", self._refuse_begin)

    def _before_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._refuse_commit()

    def _after_end(self, _: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self._note_end()

    def _after_begin(self, _: Session, __: SessionTransaction, connection: Connection) -> None:
        if self.over:
            # Nobody would give it back.
            connection.close()
        self._refuse_begin()

    def _refuse_commit(self, *_: object) -> None:
        if not self.ours:
            raise RuntimeError(OVER if self.over else COMMITTED)

    def _note_end(self, *_: object) -> None:
        if not self.ours:
            self.over = True

    def _refuse_begin(self, *_: object) -> None:
        if self.over:
            raise RuntimeError(OVER)


class _SessionWork(_Work):
    """A Session's transactions."""

    def __init__(self, factory: Any, kind: _Kind) -> None:
        super().__init__(kind)
        self._factory = factory
        self._session: Session | None = None

    def _connect(self, guard: _Guard) -> Connection:
        made = self._factory()
        session: Session = made.sync_session if isinstance(made, AsyncSession) else made
        self._session = session
        connection = session.connection()
        guard.watch(session)
        self.shown = made
        return connection

    def _flush(self) -> None:
        assert self._session is not None
        self._session.flush()

    def _commit(self) -> None:
        assert self._session is not None
        self._session.commit()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class _ConnectionWork(_Work):
    """A Connection's transactions."""

    def __init__(self, engine: Engine | AsyncEngine, kind: _Kind) -> None:
        super().__init__(kind)
        self._engine = engine
        self._lent: Connection | None = None

    def _connect(self, guard: _Guard) -> Connection:
        if isinstance(self._engine, AsyncEngine):
            outer: AsyncConnection = self._engine.connect()
            await_only(outer.start())
            self.shown = outer
            connection = outer.sync_connection
            assert connection is not None
        else:
            self.shown = connection = self._engine.connect()
        self._lent = connection
        connection.begin()
        guard.watch_connection(connection)
        return connection

    def _commit(self) -> None:
        assert self._lent is not None
        self._lent.commit()

    def _close(self) -> None:
        connection, self._lent = self._lent, None
        if connection is not None:
            if not (connection.invalidated or connection.in_transaction() or connection.get_transaction() is None):
                # A commit that was refused: SQLAlchemy takes it for one that failed, and rolls nothing back.
                connection.connection.rollback()
            connection.close()


def _perform(connection: Connection, statement: Statement) -> Rows:
    """Perform a statement; what it answers is rows, whatever the result is otherwise."""
    if statement.returns:
        return connection.exec_driver_sql(statement.text, statement.parameters).fetchall()
    if not statement.parameters:
        # Several statements, perhaps: not every driver takes them together.
        for text in statement.text.split("; "):
            connection.exec_driver_sql(text, execution_options={"no_parameters": True})
        return ()
    done = connection.exec_driver_sql(statement.text, statement.parameters)
    return ((),) * done.rowcount if statement.writes else ()


def _origin(error: BaseException) -> BaseException:
    """The driver's own error. SQLAlchemy's would show the parameters, which are bodies and owner tokens (R22)."""
    if isinstance(error, exc.StatementError):
        error.hide_parameters = True
        if error.orig is not None:
            return error.orig
    return error


def _brief(error: BaseException) -> str:
    """Its first line: below stand the values of rows."""
    return str(_origin(error)).partition("\n")[0]


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def _postgresql(engine: Engine, now_sql: str | None) -> tuple[_LeasedPostgresqlStore, _Postgresql]:
    sql = queries(_PLACEHOLDERS[engine.dialect.paramstyle], now_sql)
    url = engine.url.render_as_string(hide_password=True).replace(engine.url.drivername, "postgresql", 1)
    return _LeasedPostgresqlStore(EngineConnections(engine, url), sql, url), _Postgresql(url)


def _on_postgresql(leased: _LeasedPostgresqlStore, work: _Work) -> Transaction:
    return JoinedTransaction(leased.sql, work, leased.ask, leased.tell_of)


class _LeasedPostgresqlStore(PostgresqlStore):
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
            raise no_entry(self._url, _origin(error)) from _origin(error)

    def release(self, connection: Any) -> None:
        """See Connections.release."""
        connection.close()

    def send(self, connection: Any, before: tuple[Statement, ...], statement: Statement) -> Rows:
        """See Connections.send."""
        for first in before:
            _perform(connection, first)
        return _perform(connection, statement)

    def failure(self, error: Exception) -> Failure | None:
        """See Connections.failure."""
        return _failure(error)

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


def _failure(error: Exception) -> Failure | None:
    """See Connections.failure."""
    if isinstance(error, exc.DBAPIError):
        origin = _origin(error)
        sqlstate: str | None = getattr(origin, "sqlstate", None)
        if sqlstate is not None:
            return Failure(sqlstate, str(origin))
        if error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError):
            return Failure(None, str(origin))
        return None
    if isinstance(error, exc.PendingRollbackError | exc.TimeoutError | exc.ResourceClosedError | OSError):
        return Failure(None, str(error) or type(error).__name__)
    return None


class _Postgresql:
    """See _Kind."""

    def __init__(self, url: str) -> None:
        self._url = url

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
        """See _Kind.error."""
        failure = _failure(error)
        if failure is None:
            return None
        meant = store_error(failure, self._url, doubtful=statement == "commit")
        return AskedAgainError(str(meant)) if failure.sqlstate in AGAIN else meant

    def refused(self, error: Exception) -> bool:
        """See _Kind.refused."""
        failure = _failure(error)
        return failure is not None and failure.sqlstate is not None and failure.sqlstate.startswith(("23", "P0"))


# --- SQLite ----------------------------------------------------------------------------------------------------------


def _path_of(engine: Engine) -> str:
    # What is no file SqliteFile refuses.
    return engine.url.database or ":memory:"


class _Turn(Protocol):
    """One writer at a time, and the next one woken at once; SQLite itself would let the lucky one in."""

    def take(self) -> None: ...
    def end(self) -> None: ...


class _ThreadsTurn:
    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = Lock()

    def take(self) -> None:
        if not self._lock.acquire(timeout=self._timeout):
            raise _no_turn(self._timeout)

    def end(self) -> None:
        self._lock.release()


class _TasksTurn:
    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A lock belongs to a loop. Should two loops use one store, SQLite's own lock stands between them.
            self._loop, self._lock = loop, asyncio.Lock()
        try:
            await_only(asyncio.wait_for(self._lock.acquire(), self._timeout))
        except TimeoutError:
            raise _no_turn(self._timeout) from None

    def end(self) -> None:
        self._lock.release()


def _no_turn(timeout: float) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"another transaction of this process kept the database for {timeout:g} s: nothing was changed"
    )


class _Sqlite:
    """See _Kind."""

    def __init__(self, file: SqliteFile, turn: _Turn) -> None:
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

    def is_open(self, connection: Connection) -> bool:
        """See _Kind.is_open."""
        return not connection.closed and bool(self._driver(connection).in_transaction)

    def _driver(self, connection: Connection) -> Any:
        return connection.connection.driver_connection

    def error(self, error: Exception, statement: str, *, writes: bool = False) -> StoreError | None:  # noqa: ARG002
        """See _Kind.error."""
        if isinstance(error, exc.DBAPIError):
            origin: Any = _origin(error)
            return self._file.error(origin, statement, committing=statement == "commit")
        if isinstance(error, exc.PendingRollbackError | exc.TimeoutError):
            return StoreUnavailableError(f"SQLite has rolled the transaction back by itself: {type(error).__name__}")
        return None

    def refused(self, error: Exception) -> bool:
        """See _Kind.refused."""
        return isinstance(error, exc.IntegrityError)
