"""Transactions of SQLAlchemy's sessions and connections, as twicesafe.stores.joined wants them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Connection, Engine, event, exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.util import await_only

from twicesafe.errors import CommitRefusedError, StoreError
from twicesafe.stores.postgresql import without_values
from twicesafe.stores.steps import Rows, Statement

COMMITTED: Final = (
    "this transaction is committed together with its answer: do not commit it inside the handler. Nothing was "
    "committed. To have the database check something now, flush(); to undo a part, begin_nested()"
)
OVER: Final = (
    "the transaction of this session has ended, so nothing more is done in it. Where the handler rolled it back: undo "
    "a part with begin_nested() instead. Where its answer is recorded: what comes after needs a session of its own"
)


class Kind(Protocol):
    """What depends on the database."""

    def take_turn(self) -> None:
        """Wait until this transaction may begin, holding no connection."""

    def end_turn(self) -> None:
        """Let the next one begin."""

    def prepare(self, connection: Connection) -> None:
        """Make of a connection of the pool's one that the store can work with, inside its transaction."""

    def perform(self, connection: Connection, statements: tuple[Statement, ...]) -> Rows:
        """Perform them one after the other, in one round trip where the driver can; the last one's answer."""

    def is_open(self, connection: Connection) -> bool:
        """Whether the database has a transaction open, as far as the driver knows."""

    def error(self, error: Exception, statement: str, *, writes: bool = False) -> StoreError | None:
        """What an exception means; None where it is no matter of the database's. `writes` outside a transaction."""

    def refused(self, error: Exception) -> bool:
        """Whether a constraint of the application's own said no."""


class SqlalchemyWork:
    """See Work."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._connection: Connection | None = None
        self._guard = Guard()
        self._turn = False
        self.shown: Any = None

    @property
    def open(self) -> bool:
        """See Work.open."""
        return self._connection is not None

    def begin(self) -> None:
        """See Work.begin."""
        self._guard = Guard()
        self._kind.take_turn()
        self._turn = True
        try:
            self._connection = self._connect(self._guard)
            self._kind.prepare(self._connection)
        except BaseException as error:
            self.roll_back()
            self._tell(error, "begin")
            raise

    def send(self, *statements: Statement) -> Rows:
        """See Work.send."""
        assert self._connection is not None
        try:
            return self._kind.perform(self._connection, statements)
        except Exception as error:
            self._tell(error, statements[-1].name)
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
                    f"a constraint refused what the handler wrote, which was rolled back: {brief(error)}"
                ) from origin(error)
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
            raise meant from origin(error)

    def _connect(self, guard: Guard) -> Connection:
        raise NotImplementedError

    def _flush(self) -> None:
        """Nothing is held back."""

    def _commit(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class Guard:
    """Nobody but the store ends a transaction, and nobody goes on with one that has ended."""

    def __init__(self) -> None:
        self.ours = False
        """Whether what happens now is the store's doing."""
        self.over = False

    def refuse_commit(self) -> None:
        """Whoever commits is told."""
        if not self.ours:
            raise RuntimeError(OVER if self.over else COMMITTED)

    def note_end(self) -> None:
        """Somebody has rolled back."""
        if not self.ours:
            self.over = True

    def refuse_begin(self) -> None:
        """Whoever begins again is told."""
        if self.over:
            raise RuntimeError(OVER)


GUARDS: Final[WeakKeyDictionary[Any, Guard]] = WeakKeyDictionary()
"""Of the sessions and connections that are, or were, a transaction of the store's; the application's others have none.

What SQLAlchemy tells about all of a kind is told once for all: to ask it anew for each costs as much as a statement.
"""


def _before_commit(session: Session) -> None:
    guard = GUARDS.get(session)
    if guard is not None and not session.in_nested_transaction():
        guard.refuse_commit()


def _after_end(session: Session, transaction: SessionTransaction) -> None:
    guard = GUARDS.get(session)
    if guard is not None and transaction.parent is None:
        guard.note_end()


def _after_begin(session: Session, _: SessionTransaction, connection: Connection) -> None:
    guard = GUARDS.get(session)
    if guard is not None:
        if guard.over:
            # Nobody would give it back.
            connection.close()
        guard.refuse_begin()


def _on_commit(connection: Connection) -> None:
    guard = GUARDS.get(connection)
    if guard is not None:
        guard.refuse_commit()


def _on_rollback(connection: Connection) -> None:
    guard = GUARDS.get(connection)
    if guard is not None:
        guard.note_end()


def _on_begin(connection: Connection) -> None:
    guard = GUARDS.get(connection)
    if guard is not None:
        guard.refuse_begin()


_OF_SESSIONS: Final[dict[str, Callable[..., None]]] = {
    "before_commit": _before_commit,
    "after_transaction_end": _after_end,
    "after_begin": _after_begin,
}
_OF_CONNECTIONS: Final[dict[str, Callable[..., None]]] = {
    "commit": _on_commit,
    "rollback": _on_rollback,
    "begin": _on_begin,
}

_GUARDED: Final[WeakSet[Any]] = WeakSet()
"""Engines and factories of sessions that are listened to. SQLAlchemy's event.contains goes by numbers that the next
object may have."""


def _listen(target: Any, listeners: dict[str, Callable[..., None]]) -> None:
    for name, listener in listeners.items():
        event.listen(target, name, listener)


def guarded(engine: Any) -> Any:
    """The same engine to look at, with the same pool, whose connections ask their guard; so those of others do not."""
    watched = engine.execution_options()
    core = watched.sync_engine if isinstance(watched, AsyncEngine) else watched
    _listen(core, _OF_CONNECTIONS)
    _GUARDED.add(core)
    return watched


def guarded_sessions(factory: Any) -> Callable[[], Any]:
    """Makes sessions of `factory` that ask their guard."""
    bind = guarded(factory.kw["bind"])
    if not isinstance(factory, async_sessionmaker):
        if factory not in _GUARDED:
            _GUARDED.add(factory)
            _listen(factory, _OF_SESSIONS)
        return partial(factory, bind=bind)
    usual = factory.kw.get("sync_session_class") or factory.class_.sync_session_class
    watched = type(usual.__name__, (usual,), {})
    _listen(watched, _OF_SESSIONS)
    return partial(factory, bind=bind, sync_session_class=watched)


class SessionWork(SqlalchemyWork):
    """A Session's transactions."""

    def __init__(self, make: Callable[[], Any], kind: Kind) -> None:
        """`make` is of `guarded_sessions`."""
        super().__init__(kind)
        self._make = make
        self._session: Session | None = None

    def _connect(self, guard: Guard) -> Connection:
        made = self._make()
        session: Session = made.sync_session if isinstance(made, AsyncSession) else made
        self._session = session
        connection = session.connection()
        if connection.engine not in _GUARDED:
            # A session of its own kind has chosen another engine.
            _listen(connection, _OF_CONNECTIONS)
        # A handler can ask the session for its connection, and commit past the session.
        GUARDS[session] = GUARDS[connection] = guard
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
            if self._connection is not None:
                undo_refused(self._connection)
            session.close()


class ConnectionWork(SqlalchemyWork):
    """A Connection's transactions."""

    def __init__(self, engine: Engine | AsyncEngine, kind: Kind) -> None:
        """`engine` is `guarded`."""
        super().__init__(kind)
        self._engine = engine
        self._lent: Connection | None = None

    def _connect(self, guard: Guard) -> Connection:
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
        GUARDS[connection] = guard
        return connection

    def _commit(self) -> None:
        assert self._lent is not None
        self._lent.commit()

    def _close(self) -> None:
        connection, self._lent = self._lent, None
        if connection is not None:
            undo_refused(connection)
            connection.close()


def undo_refused(connection: Connection) -> None:
    """Roll back after a commit that was refused: SQLAlchemy takes it for one that failed, and rolls nothing back."""
    if not (connection.invalidated or connection.in_transaction() or connection.get_transaction() is None):
        connection.connection.rollback()


def perform(connection: Connection, statement: Statement) -> Rows:
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


def perform_all(connection: Connection, statements: tuple[Statement, ...]) -> Rows:
    """See Kind.perform."""
    rows: Rows = ()
    for statement in statements:
        rows = perform(connection, statement)
    return rows


def origin(error: BaseException) -> BaseException:
    """The driver's own error. SQLAlchemy's would show the parameters, which are bodies and owner tokens (R22)."""
    if isinstance(error, exc.StatementError):
        error.hide_parameters = True
        if error.orig is not None:
            return error.orig
    return error


def brief(error: BaseException) -> str:
    """As much of what the driver says as may be logged."""
    said = origin(error)
    return without_values(getattr(said, "sqlstate", None) or "", str(said))
