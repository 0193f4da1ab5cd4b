"""Troubles of the database's disk."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

from twicesafe.errors import StoreUnavailableError
from twicesafe.storm.chaos.disk import SmallDisk
from twicesafe.storm.chaos.plan import Part
from twicesafe.storm.chaos.troubles import LOOK, Counted, until
from twicesafe.storm.chaos.world import Flushes, World
from twicesafe.storm.ledger import Ledger, Payment

ROWS: Final = 200
"""Of a transaction that is to need room: some pages of them."""
BLOCK: Final = 40 << 20
"""Bytes that are to need room in a file: more than it has kept for itself."""
_NO_SPACE: Final = re.compile(
    r"no space left|disk is full|disk full|table .* is full|err(no:|or) 28|short write while writing to the AOF",
    re.IGNORECASE,
)
"""In the words of PostgreSQL, MariaDB and Redis. Redis calls it short where a part of what it wrote did fit."""


class Refusals(Protocol):
    """What a database says of a disk that is full."""

    def begin(self) -> None:
        """Whatever it has said until now does not count."""

    def count(self) -> int:
        """How often since. It may take a moment."""


class DiskFull(Counted):
    """Felt where the database said that there is no space left.

    What the storm writes may fit into what a database has reserved before. So rows of the trouble's own go into `rows`.
    """

    def __init__(self, disk: SmallDisk, refusals: Refusals, rows: Ledger | None) -> None:
        super().__init__()
        self._disk = disk
        self._refusals = refusals
        self._refused = 0
        self._rows = rows
        self._full = False
        self._at_work: list[asyncio.Task[None]] = []

    async def begin(self, part: Part) -> None:  # noqa: ARG002 - there is one way
        await asyncio.to_thread(self._refusals.begin)
        self._full = True
        self._at_work = [asyncio.create_task(self._keep_full())]
        if self._rows is not None:
            self._at_work.append(asyncio.create_task(self._write(self._rows)))

    async def end(self) -> None:
        await until(self._is_refused)
        self._full = False
        filling, *writing = self._at_work
        for task in writing:
            task.cancel()
        # What is filling it up does so in a thread, which cannot be stopped.
        await asyncio.gather(filling, *writing, return_exceptions=True)
        await asyncio.to_thread(self._disk.free)
        self.figures["writes refused"] += self._refused
        self.count(felt=self._refused > 0)

    async def _is_refused(self) -> bool:
        self._refused = await asyncio.to_thread(self._refusals.count)
        return self._refused > 0

    async def _keep_full(self) -> None:
        """Whatever the database gives back meanwhile."""
        while self._full:
            await asyncio.to_thread(self._disk.fill)
            await asyncio.sleep(LOOK)

    async def _write(self, rows: Ledger) -> None:
        while True:
            with suppress(StoreUnavailableError):
                async with rows.transaction() as connection:
                    for number in range(ROWS):
                        await rows.write(connection, uuid4().hex, Payment("ballast", number, "-", "-" * 60))
            await asyncio.sleep(LOOK)


class InLog(Protocol):
    """A private server."""

    def log(self) -> str:
        """What it has written so far."""


class RefusalsInLog:
    """Of a server, which complains in its log."""

    def __init__(self, server: InLog) -> None:
        self._server = server
        self._before = 0

    def begin(self) -> None:
        """See Refusals."""
        self._before = self._lines()

    def count(self) -> int:
        """See Refusals."""
        return self._lines() - self._before

    def _lines(self) -> int:
        return sum(1 for line in self._server.log().splitlines() if _NO_SPACE.search(line))


class RefusalsOfFile:
    """Of a SQLite file, which has no log: each count writes something into it, and takes it back."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._refused = 0

    def begin(self) -> None:
        """See Refusals."""
        self._refused = 0

    def count(self) -> int:
        """See Refusals."""
        try:
            with closing(sqlite3.connect(self._file, timeout=2.0, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("CREATE TABLE storm_ballast (block BLOB)")
                connection.execute("INSERT INTO storm_ballast VALUES (zeroblob(?))", (BLOCK,))
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._refused += error.sqlite_errorcode == sqlite3.SQLITE_FULL
        return self._refused


class SlowDisk(Counted):
    """Felt where flushes took as long as they were to."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._asked = 0.0
        self._before = Flushes(0, 0.0)
        self._seconds = 0.0
        self._flushes = 0

    async def begin(self, part: Part) -> None:
        self._asked = part.strength
        self._before = self._world.flushes()
        self._world.set_delay(part.strength)

    async def struck(self) -> None:
        await until(self._has_flushed)

    async def end(self) -> None:
        await self.struck()
        self._world.set_delay(0.0)
        now = self._world.flushes()
        number, seconds = now.number - self._before.number, now.seconds - self._before.seconds
        self._flushes += number
        self._seconds += seconds
        self.figures["flushes delayed"] += number
        self.figures["ms each"] = round(1000 * self._seconds / max(1, self._flushes))
        self.count(felt=number > 0 and seconds >= number * self._asked)

    async def _has_flushed(self) -> bool:
        return self._world.flushes().number > self._before.number
