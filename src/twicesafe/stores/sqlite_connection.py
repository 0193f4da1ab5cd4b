"""Connections to one SQLite file, what its errors mean, and the clock that all processes on it share.

WAL, so that readers and the writer do not wait for each other; synchronous=FULL, so that what is committed outlives a
power cut (I11).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from twicesafe.core.record import Instant
from twicesafe.errors import (
    AmbiguousWriteError,
    CommitRefusedError,
    ConfigurationError,
    StoreError,
    StoreUnavailableError,
)
from twicesafe.stores.sql.schema import apply_schema, check_schema
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.steps import Batch, Rows, Statement, Step, drive

OLDEST: Final = (3, 35, 0)
"""The first SQLite with RETURNING."""

PAUSE: Final = 0.002
"""Seconds between two tries for the write lock. SQLite's own waiting sleeps up to 0.1 s and so loses to newcomers."""

Configure = Callable[[sqlite3.Connection], object]
"""Prepares a connection for handlers: pragmas such as foreign_keys, a row factory, functions."""


def as_it_is(connection: sqlite3.Connection) -> None:
    """Nothing to prepare."""


def host_clock() -> Instant:
    """The host's clock: every process on the file runs on this host, so it is the file's clock (I12)."""
    return time.time_ns() // 1000


class SqliteFile:
    """One database file and how it is opened."""

    def __init__(
        self, path: str | os.PathLike[str], busy_timeout: timedelta, clock: Callable[[], Instant], configure: Configure
    ) -> None:
        name = os.fspath(path)
        if not name or name == ":memory:" or name.startswith("file:"):
            raise ConfigurationError(
                f"a SQLite store needs the path of a file, not {name!r}: its connections have to see one database; "
                "for records in memory use twicesafe.stores.memory"
            )
        if busy_timeout < timedelta(0):
            raise ConfigurationError(f"busy_timeout must be a timedelta of at least 0, not {busy_timeout!r}")
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigurationError(
                f"SQLite {sqlite3.sqlite_version} is too old: twicesafe needs {'.'.join(map(str, OLDEST))} or later"
            )
        # A later chdir must not lead to another database.
        self.path: Final = Path(name).absolute()
        self.url: Final = f"sqlite:///{self.path}"
        self.busy_seconds: Final = busy_timeout.total_seconds()
        self.clock: Final = clock
        self.sql: Final = Queries(Dialect.SQLITE, Placeholder.QUESTION_MARK)
        self._configure = configure

    def connect(self, *, for_handlers: bool = False) -> SqliteConnection:
        """A new connection, outside any transaction. StoreUnavailableError where the file cannot be opened."""
        deadline = time.monotonic() + self.busy_seconds
        while True:
            try:
                return self._connect(for_handlers=for_handlers)
            except sqlite3.Error as error:
                # Turning WAL on for the first time and recovering after a crash are done by one process alone, and
                # SQLite does not always wait for it by itself.
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise self.error(error, f"{self.path} cannot be opened") from error
                time.sleep(PAUSE)

    def _connect(self, *, for_handlers: bool) -> SqliteConnection:
        connection = sqlite3.connect(
            self.path, timeout=0, isolation_level=None, check_same_thread=False, factory=SqliteConnection
        )
        try:
            connection.file = self
            connection.create_function("twicesafe_now", 0, self.clock)
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    raise ConfigurationError(
                        f"{self.path} cannot be put into WAL mode (it stays {mode!r}): keep it on a local file system"
                    )
            connection.execute("PRAGMA synchronous = FULL")
            if for_handlers:
                self._configure(connection)
                connection.configured_row_factory = connection.row_factory
                connection.set_authorizer(connection.authorize)
        except BaseException:
            connection.close()
            raise
        return connection

    def check_schema(self) -> None:
        """See Store.check_schema."""
        with closing(self.connect()) as connection:
            drive(check_schema(self.sql, self.url), connection.perform)

    def apply_schema(self) -> None:
        """See Store.apply_schema."""
        with closing(self.connect()) as connection:
            drive(apply_schema(self.sql), connection.perform)

    def error(self, error: sqlite3.Error, what: str = "SQLite refused", *, committing: bool = False) -> StoreError:
        """What SQLite's error means: the one place that knows. Judged by its code, never by its message."""
        code = primary_code(error)
        detail = f"{what}: {getattr(error, 'sqlite_errorname', type(error).__name__)}"
        if code == sqlite3.SQLITE_BUSY and committing:
            return StoreUnavailableError(
                "the transaction was rolled back, because a statement of its handler had not been read to its end: "
                "fetch all rows, or close the cursor"
            )
        if code == sqlite3.SQLITE_BUSY:
            return StoreUnavailableError(
                f"{self.path} stayed locked by another writer for {self.busy_seconds:g} s: nothing was changed"
            )
        if committing and code == sqlite3.SQLITE_CONSTRAINT:
            return CommitRefusedError(f"a constraint refused the commit, which was rolled back ({detail})")
        if committing and code not in NOT_COMMITTED:
            return AmbiguousWriteError(f"the commit failed and may stand all the same ({detail})")
        return StoreUnavailableError(detail)


class Answer(NamedTuple):
    """The result of some steps, in the shape in which aiosqlite asks for rows."""

    result: Any

    def fetchall(self) -> Any:
        """The result."""
        return self.result


class HandlersCursor(sqlite3.Cursor):
    """What a handler runs its statements with. Each is refused once its transaction is gone: it would commit alone."""

    connection: SqliteConnection

    def execute(self, sql: Any, parameters: Any = (), /) -> Any:
        """See sqlite3.Cursor.execute."""
        self.connection.refuse_if_lost()
        return super().execute(sql, parameters)

    def executemany(self, sql: Any, parameters: Any, /) -> Any:
        """See sqlite3.Cursor.executemany."""
        self.connection.refuse_if_lost()
        return super().executemany(sql, parameters)

    def executescript(self, script: Any, /) -> Any:
        """See sqlite3.Cursor.executescript."""
        self.connection.refuse_if_lost()
        return super().executescript(script)


class SqliteConnection(sqlite3.Connection):
    """A connection that performs steps. Between `guard` and the end of the transaction nobody else can end it."""

    file: SqliteFile
    guarded = False
    abandoned = False
    """Whoever waits for this connection's transaction to begin has gone: stop trying."""
    closed = False
    configured_row_factory: Any = None

    # --- steps --------------------------------------------------------------------------------------------------------

    def perform(self, step: Step) -> Rows:
        """Perform one step, waiting for the write lock up to the busy timeout; StoreError says what went wrong."""
        if type(step) is Batch:
            rows: Rows = ()
            for statement in step.statements:
                rows = self.perform(statement)
            return rows
        assert type(step) is Statement
        deadline = 0.0
        while True:
            try:
                return self.once(step)
            except sqlite3.Error as error:
                waits = step.name != "commit" and not self.abandoned and not self.transaction_is_open()
                if is_busy(error) and waits:
                    now = time.monotonic()
                    deadline = deadline or now + self.file.busy_seconds
                    if now < deadline:
                        time.sleep(PAUSE)
                        continue
                self.fail(error, step)

    def once(self, statement: Statement) -> Rows:
        """Perform one statement without waiting for anybody. Raises SQLite's own errors."""
        if statement.name == "commit":
            return self._commit()
        if statement.name == "rollback":
            self.guarded = False
            if self.transaction_is_open():
                super().rollback()
            return ()
        if (self.guarded or statement.name == "record") and not self.in_transaction:
            raise _undone()
        # Neither a handler's row factory nor its kind of cursor.
        cursor = sqlite3.Cursor(self)
        try:
            cursor.execute(statement.text, statement.parameters)
            if statement.writes and not statement.returns:
                return ((),) * cursor.rowcount
            return cursor.fetchall()
        finally:
            cursor.close()

    def _plainly(self, step: Step) -> Rows:
        assert type(step) is Statement
        return self.once(step)

    def _commit(self) -> Rows:
        self.guarded = False
        if not self.in_transaction:
            raise _undone()
        try:
            super().commit()
        except sqlite3.Error:
            # Else it would stay open and lock everybody out.
            if self.in_transaction:
                super().rollback()
            raise
        return ()

    def fail(self, error: sqlite3.Error, statement: Statement) -> NoReturn:
        """Raise what `error` means. Where the statement itself was refused, missing tables are the likely cause."""
        if primary_code(error) == sqlite3.SQLITE_ERROR:
            with suppress(sqlite3.Error):
                drive(check_schema(self.file.sql, self.file.url), self._plainly)
        raise self.file.error(error, statement.name, committing=statement.name == "commit") from error

    def execute(self, sql: Any, parameters: Any = (), /) -> Any:
        """Also takes steps in place of SQL: so they are run in this connection's own thread, by way of aiosqlite."""
        if isinstance(sql, str):
            return self.cursor().execute(sql, parameters)
        return Answer(drive(sql, self.perform))

    def executemany(self, sql: Any, parameters: Any, /) -> Any:
        """See sqlite3.Connection.executemany, which makes a cursor of its own kind."""
        return self.cursor().executemany(sql, parameters)

    def executescript(self, script: Any, /) -> Any:
        """See sqlite3.Connection.executescript, which makes a cursor of its own kind."""
        return self.cursor().executescript(script)

    def transaction_is_open(self) -> bool:
        """in_transaction, and False for a connection that was closed."""
        try:
            return self.in_transaction
        except sqlite3.ProgrammingError:
            return False

    def as_configured(self) -> None:
        """Undo what a handler did for itself, and let another transaction begin."""
        self.guarded = False
        self.row_factory = self.configured_row_factory
        if self.isolation_level is not None:
            self.isolation_level = None

    def close(self) -> None:
        """Close it, rolling back what is open; a handler may."""
        self.closed = True
        super().close()

    # --- guarding -----------------------------------------------------------------------------------------------------

    def authorize(self, action: int, *_: str | None) -> int:
        """SQLite asks before it prepares anything: a handler may do everything but begin or end a transaction.

        Nothing at all once SQLite has ended it. What was prepared before is not asked about: see refuse_if_lost.
        """
        if self.guarded and (action == sqlite3.SQLITE_TRANSACTION or not self.in_transaction):
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def refuse_if_lost(self) -> None:
        """An error in a statement can make SQLite roll back everything; the handler's next one would commit alone."""
        if self.guarded and not self.in_transaction:
            raise sqlite3.OperationalError(
                "SQLite has rolled this transaction back because a statement in it failed (OR ROLLBACK, "
                "RAISE(ROLLBACK), a full disk): nothing more can be done in it, and nothing was changed"
            )

    def cursor(self, factory: Any = HandlersCursor) -> Any:
        """See sqlite3.Connection.cursor. Refused for any other kind of cursor in a handler's transaction."""
        self.refuse_if_lost()
        if self.guarded and not (isinstance(factory, type) and issubclass(factory, HandlersCursor)):
            raise sqlite3.NotSupportedError(
                "inside a transaction of twicesafe a cursor cannot have a factory of its own"
            )
        return super().cursor(factory)

    def blobopen(self, *where: Any, **options: Any) -> sqlite3.Blob:
        """See sqlite3.Connection.blobopen."""
        self.refuse_if_lost()
        return super().blobopen(*where, **options)

    def commit(self) -> None:
        """Refused inside a handler's transaction."""
        self._refuse()
        super().commit()

    def rollback(self) -> None:
        """Refused inside a handler's transaction."""
        self._refuse()
        super().rollback()

    def __exit__(self, *exc: Any) -> Any:
        self._refuse()
        return super().__exit__(*exc)

    def _refuse(self) -> None:
        if self.guarded:
            raise sqlite3.ProgrammingError(
                "this transaction is committed together with its answer: do not commit or roll back inside the "
                "handler. To undo the work, raise, or answer with an error status"
            )


def _undone() -> StoreUnavailableError:
    """An error in one of the handler's own statements can make SQLite roll back everything; nobody else can."""
    return StoreUnavailableError("SQLite rolled the transaction back by itself: nothing was changed")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else has the lock, so that trying again helps."""
    return primary_code(error) == sqlite3.SQLITE_BUSY


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; -1 for an error of Python's own, such as a connection that is closed."""
    code: int = getattr(error, "sqlite_errorcode", -1)
    return code if code < 0 else code & 0xFF


NOT_COMMITTED: Final = frozenset(
    {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, -1}
)
"""Codes with which a COMMIT fails for certain: its last page was not written. A failed fsync is not among them."""
