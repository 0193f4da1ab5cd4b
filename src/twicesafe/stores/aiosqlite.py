"""The transactional way on SQLite, for asyncio: a handler gets an aiosqlite.Connection inside its transaction.

Theory of operation. SQLite has one writer at a time, so tasks queue for their turn here, where the next one is woken at
once, and one aiosqlite connection, with its thread, is nearly always enough. What a cancelled task was waiting for
still happens in that thread; a clean-up that nobody can cancel follows it there, and only then is it the next one's
turn.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, TypeVar, cast

import aiosqlite

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.record import Micros, Ownership, StoredResponse
from twicesafe.errors import StoreError, StoreUnavailableError
from twicesafe.stores.contract import AsyncTransaction
from twicesafe.stores.sql.transactional import SqlTransactionSteps
from twicesafe.stores.sqlite_connection import SqliteConnection, SqliteFile
from twicesafe.stores.sqlite_running import Running
from twicesafe.stores.sqlite_writer import MakeSteps, Writer
from twicesafe.stores.steps import Steps, once

R = TypeVar("R")


class HandlersConnection(aiosqlite.Connection):
    """What one handler gets: the lent connection, until its transaction ends. Cursors made by it end with it."""

    def __init__(self, outer: aiosqlite.Connection) -> None:
        # Everything of aiosqlite's goes through its queue, so the other's queue is all that is needed; no new thread.
        self.__dict__.update(outer.__dict__)
        self._outer: Final = outer
        self.revoked = False

    @property
    def _conn(self) -> sqlite3.Connection:
        self._refuse_if_revoked()
        return super()._conn

    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        self._refuse_if_revoked()
        return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]

    def _refuse_if_revoked(self) -> None:
        if self.revoked:
            raise sqlite3.ProgrammingError(
                "the transaction of this connection has ended: what runs after the answer needs one of its own"
            )

    async def close(self) -> None:
        """Close the connection behind it, if it is still this handler's."""
        self._refuse_if_revoked()
        self.revoked = True
        await self._outer.close()

    def stop(self) -> Any:
        """See aiosqlite.Connection.stop."""
        self._refuse_if_revoked()
        self.revoked = True
        return self._outer.stop()

    def __del__(self) -> None:
        """Nothing is its own to close."""


class Lent:
    """One connection in two shapes: aiosqlite's for handlers, and what stands behind it in aiosqlite's thread."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._inner: SqliteConnection | None = None
        self._settled = True
        """Whether nothing that was asked for is still under way in the thread."""
        self.turn: asyncio.Lock | None = None
        self.outer: Final = aiosqlite.Connection(self._connect, iter_chunk_size=64)
        # A store that nobody closed must not keep the interpreter from ending.
        self.outer._thread.daemon = True  # noqa: SLF001 - aiosqlite has no other way

    def _connect(self) -> SqliteConnection:
        self._inner = self._file.connect(for_handlers=True)
        return self._inner

    async def open(self) -> None:
        """Open it, in its own thread."""
        await self.outer

    async def close(self) -> None:
        """End its thread."""
        await self.outer.close()

    @property
    def inner(self) -> SqliteConnection:
        """The connection proper, once it is open. Only attributes may be touched from here."""
        assert self._inner is not None
        return self._inner

    async def run(self, steps: Steps[R]) -> R:
        """Run steps to their end in the thread, where SqliteConnection.execute knows them. Cancelled, they go on."""
        self._settled = False
        try:
            result = await self.outer.execute_fetchall(cast("str", steps))
        except ValueError as error:
            raise StoreUnavailableError("the transaction's connection was closed: nothing was changed") from error
        except (StoreError, RuntimeError):
            self._settled = True
            raise
        self._settled = True
        return cast("R", result)

    def ended(self) -> bool:
        """Whether its transaction has ended for certain; then it is the next one's turn. Not of one that was closed."""
        if not self._settled or self.inner.transaction_is_open():
            return False
        self.release_turn()
        return not self.inner.closed

    def release_turn(self) -> None:
        """Let the next one begin."""
        if self.turn is not None:
            self.turn.release()
            self.turn = None


class AsyncSqliteTransactions:
    """The transactions of one AsyncSqliteStore, and the connections they take turns with."""

    MOST_IDLE: Final = 4

    def __init__(self, file: SqliteFile, writer: Writer) -> None:
        self.file: Final = file
        self.writer: Final = writer
        self.running: Final = Running()
        self._rollback = file.sql("rollback")
        self._idle: list[Lent] = []
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Lock()

    def new(self) -> AsyncSqliteTransaction:
        """A transaction that has not begun."""
        return AsyncSqliteTransaction(self)

    def taken(self) -> bool:
        """Whether one would have to wait for a turn."""
        return self._turn.locked()

    async def take(self) -> Lent:
        """A connection whose turn it is."""
        if self._closed:
            raise StoreUnavailableError(f"the store on {self.file.path} is closed")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A lock belongs to a loop. Should two loops use one store, SQLite's own lock stands between them.
            self._loop, self._turn = loop, asyncio.Lock()
        turn = self._turn
        try:
            async with asyncio.timeout(self.file.busy_seconds):
                await turn.acquire()
        except TimeoutError:
            raise StoreUnavailableError(
                f"another transaction of this process kept {self.file.path} for {self.file.busy_seconds:g} s: "
                "nothing was changed"
            ) from None
        try:
            lent = self._idle.pop() if self._idle else await self._opened()
        except BaseException:
            turn.release()
            raise
        lent.turn = turn
        return lent

    async def _opened(self) -> Lent:
        lent = Lent(self.file)
        opening = self._in_background(lent.open())
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._in_background(self._close_unwanted(opening, lent))
            raise
        return lent

    async def _close_unwanted(self, opening: asyncio.Task[None], lent: Lent) -> None:
        await asyncio.wait([opening])
        await lent.close()

    async def give_back(self, lent: Lent) -> None:
        """For others to take, after what is still under way in its thread. Cancelled, it goes on by itself."""
        if lent.ended() and len(self._idle) < self.MOST_IDLE and not self._closed:
            lent.inner.as_configured()
            self._idle.append(lent)
        else:
            await asyncio.shield(self._in_background(self._clean(lent)))

    async def _clean(self, lent: Lent) -> None:
        lent.inner.abandoned = True
        try:
            await lent.run(once(self._rollback))
        except StoreError:
            # Closed by its handler, or broken; either way SQLite has rolled back.
            await lent.close()
        except asyncio.CancelledError:
            # The loop itself comes to its end, and waits for its tasks. This comes after the rollback in the thread.
            await lent.close()
            raise
        else:
            lent.inner.abandoned = False
            lent.ended()
            if self._closed or len(self._idle) >= self.MOST_IDLE:
                await lent.close()
            else:
                lent.inner.as_configured()
                self._idle.append(lent)
        finally:
            lent.release_turn()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def aclose(self) -> None:
        """Close those that are idle now, and the others as they come back."""
        self._closed = True
        loop = asyncio.get_running_loop()
        mine = [task for task in self._background if task.get_loop() is loop]
        if mine:
            await asyncio.wait(mine)
        while self._idle:
            await self._idle.pop().close()


class AsyncSqliteTransaction:
    """One transaction of an AsyncSqliteStore; a context manager, for one task at a time."""

    def __init__(self, transactions: AsyncSqliteTransactions) -> None:
        self._transactions = transactions
        self._steps = SqlTransactionSteps(transactions.file.sql)
        self._lent: Lent | None = None
        self._shown: HandlersConnection | None = None
        self._claim: Claim | None = None

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._leave()

    @property
    def connection(self) -> aiosqlite.Connection:
        """See Transaction.connection."""
        if self._lent is None or not self._steps.open:
            raise LookupError("a transaction has a connection from its claim or begin() to its end")
        if self._shown is None:
            self._shown = HandlersConnection(self._lent.outer)
        return self._shown

    async def begin(self) -> None:
        """See Transaction.begin."""
        if not self._steps.open:
            await self._leave()
            self._lent = await self._transactions.take()
        try:
            await self._run(self._steps.begin)
        finally:
            await self._guard_or_leave()

    async def commit(self) -> None:
        """See Transaction.commit."""
        await self._end(self._steps.commit)

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        transactions = self._transactions
        running = transactions.running
        if not self._steps.open:
            await self._leave()
            if transactions.taken() or running.rival(claim) is not None:
                decided = await transactions.writer.arun(partial(self._steps.look_first, claim))
                if decided is not None:
                    return decided
            verdict = running.enter(claim)
            if verdict is not None:
                return Existing(verdict, None, transactions.file.clock())
            self._claim = claim
            self._lent = await transactions.take()
        try:
            return await self._run(partial(self._steps.claim, claim))
        finally:
            await self._guard_or_leave()

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """There is no lease: the write lock lasts as long as the transaction."""

    async def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        try:
            await self._run(partial(self._steps.advance, own, seen, point, data))
        finally:
            await self._guard_or_leave()

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        await self._end(partial(self._steps.start_answer, own, head))

    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete."""
        await self._end(partial(self._steps.complete, own, response, key_us, body_us, keep_effects=keep_effects))

    async def release(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.release."""
        await self._end(self._steps.roll_back)

    async def hold(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.hold."""
        await self._end(self._steps.roll_back)

    async def _run(self, make_steps: MakeSteps[R]) -> R:
        if self._lent is None:
            # Asked again after its end, which takes no more than a look.
            return await self._transactions.writer.arun(make_steps)
        return await self._lent.run(make_steps())

    def _revoke(self) -> None:
        """Before the end is asked for: what its handler asked for earlier still comes first in the thread."""
        shown, self._shown = self._shown, None
        if shown is not None:
            shown.revoked = True

    async def _end(self, make_steps: MakeSteps[None]) -> None:
        self._revoke()
        try:
            await self._run(make_steps)
        finally:
            if self._lent is not None:
                self._lent.ended()
            self._unmark()

    def _unmark(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            self._transactions.running.leave(claim)

    async def _guard_or_leave(self) -> None:
        if self._steps.open and self._lent is not None:
            self._lent.inner.guarded = True
        else:
            await self._leave()

    async def _leave(self) -> None:
        self._revoke()
        # Not merely ended: steps that were cancelled may still be under way, and write down that they have begun.
        self._steps = SqlTransactionSteps(self._transactions.file.sql)
        self._unmark()
        lent, self._lent = self._lent, None
        if lent is not None:
            await self._transactions.give_back(lent)
