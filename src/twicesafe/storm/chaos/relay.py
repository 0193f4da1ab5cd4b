"""The network between servers and database where no namespaces may be made: a relay on 127.0.0.1, which is cut.

What it does not pass on stays with it until it is mended, as what a cut cable loses is sent again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from twicesafe.storm.chaos.link import Passed
from twicesafe.storm.chaos.plan import How
from twicesafe.storm.proxy import Line

LATE: Final = 0.06
"""Seconds by which everything is late while it is slow."""
_CHUNK: Final = 65536


class Relay:
    """To `port` of 127.0.0.1, from the port that it listens on once it was opened."""

    way = "relay"

    def __init__(self, port: int) -> None:
        self.port = 0
        self._to = port
        self._server: asyncio.Server | None = None
        self._lines: set[Line] = set()
        """To servers. The other end of each is the database."""
        self._pairs: set[asyncio.Task[None]] = set()
        self._how: How | None = None
        self._late = 0.0
        self._whole = asyncio.Event()
        self._whole.set()
        self.held = 0
        """What was kept back or reset since it was cut."""
        self._delayed = 0
        self._met = 0

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Drop everything."""
        if self._server is not None:
            self._server.close()
        for pair in self._pairs:
            pair.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def cut(self, how: How) -> None:
        """From now on."""
        self.held = 0
        self._met = len(self._lines)
        self._how = how
        self._whole.clear()
        if how is How.RESET:
            for line in self._lines:
                line.reset()
            self.held += len(self._lines)

    async def mend(self) -> Passed:
        """As if it had never been cut. What the database has been waiting for is gone for it, too."""
        self._how = None
        self._whole.set()
        return Passed(self.held, self._met)

    async def slow(self) -> None:
        """Let what passes pass late, both ways."""
        self._delayed = 0
        self._met = len(self._lines)
        self._late = LATE

    async def speed(self) -> Passed:
        """Let it pass as fast as before."""
        self._late = 0.0
        return Passed(self._delayed, self._met)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = asyncio.get_running_loop().create_task(self._carry(Line(reader, writer)))
        self._pairs.add(pair)
        pair.add_done_callback(self._pairs.discard)

    async def _carry(self, ours: Line) -> None:
        if self._how is How.RESET:
            self.held += 1
            ours.reset()
            return
        theirs = None
        try:
            theirs = Line(*await asyncio.open_connection("127.0.0.1", self._to))
            self._lines.add(ours)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(ours, theirs, held_by=frozenset({How.SILENCE, How.RESET})))
                both.create_task(self._pass(theirs, ours, held_by=frozenset(How)))
        except* (OSError, EOFError):
            pass  # one end is gone, and then so is the other
        finally:
            self._lines.discard(ours)
            for line in (ours, theirs):
                if line is not None:
                    line.reset()

    async def _pass(self, source: Line, sink: Line, held_by: frozenset[How]) -> None:
        while True:
            data = b""
            with suppress(ConnectionError):
                data = await source.reader.read(_CHUNK)
            if self._how in held_by:
                self.held += bool(data)
                await self._whole.wait()
            elif self._late:
                self._delayed += bool(data)
                await asyncio.sleep(self._late)
            if not data:
                raise EOFError
            await sink.send(data)
