"""Troubles of the clocks, and what is heard of the servers', in whose answers it is."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Final

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import AsyncStore
from twicesafe.storm.chaos.plan import Part
from twicesafe.storm.chaos.troubles import LOOK, PATIENCE, Counted, until
from twicesafe.storm.chaos.world import World

_NEAR: Final = 3.0
"""Seconds by which a clock may seem to differ from what it was set to: an answer says whole ones, and is some old."""


class Heard:
    """The answers of servers, which say what time it is for them."""

    def __init__(self) -> None:
        self.failures = 0
        """Answers of 500 and above."""
        self.offset = 0.0
        """By how many seconds the clock of the server was off that answered last."""
        self.sought = 0.0
        self.found = 0
        """How many answers had about the offset that is sought."""

    def seek(self, offset: float) -> None:
        """From now on."""
        self.sought = offset
        self.found = 0

    def hear(self, answer: bytes) -> None:
        """One answer."""
        head = answer.partition(b"\r\n\r\n")[0]
        self.failures += head[9:10] == b"5"
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"date":
                self.offset = parsedate_to_datetime(value.strip().decode("ascii")).timestamp() - time.time()
                self.found += abs(self.offset - self.sought) < _NEAR

    async def until_found(self) -> bool:
        """Whether one came."""
        await until(self._is_found)
        return self.found > 0

    async def _is_found(self) -> bool:
        return self.found > 0


class AppClock(Counted):
    """Felt where servers answered with the date that it was for them."""

    def __init__(self, world: World, heard: Heard) -> None:
        super().__init__()
        self._world = world
        self._heard = heard

    async def begin(self, part: Part) -> None:
        self._heard.seek(part.strength)
        self._world.set_clock(part.strength)

    async def end(self) -> None:
        felt = await self._heard.until_found()
        self.figures["answers with a wrong date"] += self._heard.found
        self.figures[f"off by {self._world.offset:+.0f} s"] += 1
        self._world.set_clock(0.0)
        self.count(felt=felt)


class StoreClock(Counted):
    """It stays as it is after a jump. Felt where the store says so itself, or where servers do that are its clock."""

    def __init__(self, world: World, store: AsyncStore, servers: Heard | None) -> None:
        super().__init__()
        self._world = world
        self._store = store
        self._servers = servers
        self._jump = 0.0

    async def begin(self, part: Part) -> None:
        self._jump = part.strength
        offset = self._world.offset + part.strength
        if self._servers is not None:
            self._servers.seek(offset)
        self._world.set_clock(offset)

    async def end(self) -> None:
        """It is what time it is now."""

    async def look_back(self) -> None:
        self.figures[f"jump of {self._jump:+.0f} s"] += 1
        if self._servers is not None:
            self.count(felt=await self._servers.until_found())
            observed = self._servers.offset
        else:
            observed = await self._observed()
            self.count(felt=abs(observed - self._world.offset) < _NEAR)
        self.figures["s off at last"] = round(observed)

    async def _observed(self) -> float:
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(StoreUnavailableError):
                    return await self._store.now() / 1_000_000 - time.time()
                await asyncio.sleep(LOOK)
