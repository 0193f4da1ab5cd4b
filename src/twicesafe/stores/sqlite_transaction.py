"""The transactional way on SQLite, in blocking calls: the write lock from the claim to the commit."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from threading import Lock
from typing import Final, TypeVar

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.record import Micros, Ownership, StoredResponse
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import Transaction
from twicesafe.stores.forks import keep_for_ever
from twicesafe.stores.sql.transactional import SqlTransactionSteps
from twicesafe.stores.sqlite_connection import SqliteConnection, SqliteFile
from twicesafe.stores.sqlite_running import Running
from twicesafe.stores.sqlite_writer import MakeSteps, Writer
from twicesafe.stores.steps import drive

R = TypeVar("R")


class SqliteTransaction:
    """One transaction of a SqliteStore; a context manager, for one thread at a time."""

    def __init__(self, file: SqliteFile, writer: Writer, connections: Connections) -> None:
        self._file = file
        self._writer = writer
        self._connections = connections
        self._steps = SqlTransactionSteps(file.sql)
        self._connection: SqliteConnection | None = None
        self._claim: Claim | None = None

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave()

    @property
    def connection(self) -> sqlite3.Connection:
        """See Transaction.connection."""
        if self._connection is None or not self._steps.open:
            raise LookupError("a transaction has a connection from its claim or begin() to its end")
        return self._connection

    def begin(self) -> None:
        """See Transaction.begin."""
        if not self._steps.open:
            self._leave()
            self._connection = self._connections.take()
        try:
            self._run(self._steps.begin)
        finally:
            self._guard_or_leave()

    def commit(self) -> None:
        """See Transaction.commit."""
        self._end(self._steps.commit)

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        connections = self._connections
        running = connections.running
        if not self._steps.open:
            self._leave()
            if connections.taken() or running.rival(claim) is not None:
                decided = self._writer.run(partial(self._steps.look_first, claim))
                if decided is not None:
                    return decided
            verdict = running.enter(claim)
            if verdict is not None:
                return Existing(verdict, None, self._file.clock())
            self._claim = claim
            self._connection = connections.take()
        try:
            return self._run(partial(self._steps.claim, claim))
        finally:
            self._guard_or_leave()

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """There is no lease: the write lock lasts as long as the transaction."""

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        try:
            self._run(partial(self._steps.advance, own, seen, point, data))
        finally:
            self._guard_or_leave()

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._end(partial(self._steps.start_answer, own, head))

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete."""
        self._end(partial(self._steps.complete, own, response, key_us, body_us, keep_effects=keep_effects))

    def release(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.release."""
        self._end(self._steps.roll_back)

    def hold(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.hold."""
        self._end(self._steps.roll_back)

    def _run(self, make_steps: MakeSteps[R]) -> R:
        if self._connection is None:
            # Asked again after its end, which takes no more than a look.
            return self._writer.run(make_steps)
        return drive(make_steps(), self._connection.perform)

    def _end(self, make_steps: MakeSteps[None]) -> None:
        try:
            self._run(make_steps)
        finally:
            try:
                if self._connection is not None:
                    self._connections.roll_back(self._connection)
            finally:
                self._unmark()

    def _unmark(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            self._connections.running.leave(claim)

    def _guard_or_leave(self) -> None:
        if self._steps.open and self._connection is not None:
            self._connection.guarded = True
        else:
            self._leave()

    def _leave(self) -> None:
        self._steps = SqlTransactionSteps(self._file.sql)
        self._unmark()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.give_back(connection)


class Connections:
    """Connections for transactions. One of them at a time has its turn to write; the others are on their way out."""

    MOST_IDLE: Final = 4

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self.running: Final = Running()
        self._turn = Lock()
        self._holder: SqliteConnection | None = None
        self._idle: list[SqliteConnection] = []
        self._pid = os.getpid()
        self._closed = False

    def taken(self) -> bool:
        """Whether one would have to wait for a turn."""
        return self._turn.locked()

    def take(self) -> SqliteConnection:
        """A connection whose turn it is. Threads queue here, where a lock wakes the next one at once."""
        if self._closed:
            raise StoreUnavailableError(f"the store on {self._file.path} is closed")
        if self._pid != os.getpid():
            # Forked: what the parent has open is the parent's, and so is its turn.
            keep_for_ever(self._idle)
            self._idle, self._turn, self._holder, self._pid = [], Lock(), None, os.getpid()
        if not self._turn.acquire(timeout=self._file.busy_seconds):
            raise StoreUnavailableError(
                f"another transaction of this process kept {self._file.path} for {self._file.busy_seconds:g} s: "
                "nothing was changed"
            )
        try:
            connection = self._idle.pop() if self._idle else self._file.connect(for_handlers=True)
        except BaseException:
            self._turn.release()
            raise
        self._holder = connection
        return connection

    def roll_back(self, connection: SqliteConnection) -> None:
        """End its transaction, if it is still open, and its turn."""
        try:
            connection.once(self._file.sql("rollback"))
        finally:
            if self._holder is connection:
                self._holder = None
                self._turn.release()

    def give_back(self, connection: SqliteConnection) -> None:
        """For others to take."""
        self.roll_back(connection)
        if self._closed or connection.closed or len(self._idle) >= self.MOST_IDLE:
            connection.close()
        else:
            connection.as_configured()
            self._idle.append(connection)

    def close(self) -> None:
        """Close those that are idle now, and the others as they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
