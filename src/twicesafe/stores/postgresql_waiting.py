"""Wake-ups for those who wait for somebody else's key, on one connection of the process's own, outside of any pool.

Theory of operation. Whoever waits marks its key by a lock of this connection's session. Whoever settles a key asks for
that lock in the very statement that writes the record, which costs it no round trip and hardly any time, and learns so
whether somebody waits. Only then, and only after its commit, it sends a NOTIFY in a transaction of its own, because
NOTIFY takes a lock at commit for which every other commit with one would queue. One task owns the connection. It marks
and looks for all who wait at once, and looks again now and then, for nobody tells of a transaction that was rolled back
or of a server that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

from twicesafe.core.record import Micros
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Rows, Statement

FLOOR: Final = 0.5
"""Seconds between two looks at everything that is waited for."""
POLL: Final = 0.25
"""Seconds after which to ask the store again where nobody can tell."""
MARK_AGAIN: Final = 0.02
"""Seconds after which to look again at a key that somebody is about to commit."""
LINGER: Final = 2.0
"""Seconds for which a mark outlives its last waiter, who asks the store in between and usually comes back."""
OPEN_AGAIN: Final = 1.0
"""Seconds between two tries at a connection."""


class Line(Protocol):
    """A connection that listens."""

    async def ask(self, statement: Statement) -> Rows:
        """Perform one statement."""

    async def aclose(self) -> None:
        """Close it."""


class Lines(Protocol):
    """A driver."""

    async def listen(self, told: Callable[[str], None]) -> Line | None:
        """A connection that hands each payload of CHANNEL to `told`; None where none can be had that hears of them.

        That is so with a pool of somebody else's, whose address is not known, and behind a pooler of transactions.
        """

    def failure(self, error: Exception) -> object | None:
        """None where it is no matter of the connection's or the server's."""


class WakeUps:
    """Everybody of one store who waits."""

    def __init__(self, lines: Lines, sql: Queries) -> None:
        self._lines = lines
        self._sql = sql
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}
        self._unseen: set[bytes] = set()
        """Keys at which to look since somebody began to wait."""
        self._marked: dict[bytes, float] = {}
        """When each marked key was last waited for."""
        self._line: Line | None = None
        self._deaf = False
        """Whether nobody will ever tell."""
        self._open_at = 0.0
        self._asked = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def settled(self, digest: bytes, within_us: Micros) -> None:
        """Return when the record of `digest` may have changed, or the time is over."""
        loop = asyncio.get_running_loop()
        within = within_us / 1_000_000
        keeps = self._keeper is not None and not self._keeper.done()
        if self._deaf or (not keeps and loop.time() < self._open_at):
            await asyncio.sleep(min(within, POLL))
            return
        woken = loop.create_future()
        self._waiting.setdefault(digest, set()).add(woken)
        self._unseen.add(digest)
        self._asked.set()
        if not keeps:
            self._keeper = loop.create_task(self._keep())
        try:
            async with asyncio.timeout(within):
                await woken
        except TimeoutError:
            pass
        finally:
            waiting = self._waiting[digest]
            waiting.discard(woken)
            if not waiting:
                del self._waiting[digest]

    async def aclose(self) -> None:
        """Close the connection, and let everybody ask."""
        self._deaf = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        self._wake(tuple(self._waiting))

    # --- the keeper ---------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Own the connection for as long as there is something to wait for; kept until it is closed or fails."""
        try:
            while True:
                if self._line is None:
                    # One that has worked for a while and broke is replaced at once.
                    self._open_at = asyncio.get_running_loop().time() + OPEN_AGAIN
                    self._line = await self._lines.listen(self._told)
                    if self._line is None:
                        self._deaf = True
                        break
                self._asked.clear()
                pause = await self._round(self._line)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._asked.wait()
        except Exception as error:
            # A server that is away, or a right that is missing: those who wait poll meanwhile.
            if self._lines.failure(error) is None:
                self._deaf = True
                raise
        finally:
            line, self._line = self._line, None
            self._marked.clear()
            self._wake(tuple(self._waiting))
            if line is not None:
                await line.aclose()

    async def _round(self, line: Line) -> float | None:
        """Mark what is not marked yet, then look; then only a change after the look is left to be told of.

        Returns in how many seconds to look again; None where there is nothing to look at.
        """
        now = asyncio.get_running_loop().time()
        unseen, self._unseen = self._unseen, set()
        looked_at = unseen & self._waiting.keys() or set(self._waiting)
        for digest in self._waiting.keys() & self._marked.keys():
            self._marked[digest] = now
        over = [digest for digest, last in self._marked.items() if now - last > LINGER]
        if over:
            await line.ask(self._sql("unmark_waiting", digests=over))
            for digest in over:
                del self._marked[digest]
        refused: set[bytes] = set()
        if new := looked_at - self._marked.keys():
            marked = {row[0] for row in await line.ask(self._sql("mark_waiting", digests=list(new)))}
            self._marked.update(dict.fromkeys(marked, now))
            refused = new - marked
        if looked_at:
            rows = await line.ask(self._sql("in_progress", digests=list(looked_at)))
            self._wake(looked_at - {row[0] for row in rows})
        self._unseen |= refused
        if refused:
            return MARK_AGAIN
        return FLOOR if self._waiting or self._marked else None

    def _told(self, payload: str) -> None:
        with suppress(ValueError):
            self._wake((bytes.fromhex(payload),))

    def _wake(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            for woken in self._waiting.get(digest, ()):
                if not woken.done():
                    woken.set_result(None)
