"""A spell of the lab: in which order its troubles come and go, and what goes on beside them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.record import Instant, Ownership
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.storm.chaos.beside import keep_asking, keep_writing
from twicesafe.storm.chaos.matrix import Cell, Operation
from twicesafe.storm.chaos.plan import Part, Spell, Trouble
from twicesafe.storm.chaos.troubles_disk import SlowDisk
from twicesafe.storm.chaos.weather import LabWeather
from twicesafe.storm.chaos.world import World
from twicesafe.storm.databases import SqliteFile

NOBODY: Any = None


class Noted:
    """A trouble that says what is done with it."""

    blows = unfelt = 0

    def __init__(self, name: str, told: list[str]) -> None:
        self.figures: Counter[str] = Counter()
        self._name = name
        self._told = told

    async def begin(self, part: Part) -> None:
        self._told.append(f"{self._name} begins")

    async def struck(self) -> None:
        self._told.append(f"{self._name} is waited for")

    async def end(self) -> None:
        self._told.append(f"{self._name} ends")

    async def look_back(self) -> None:
        """Nothing more."""


def weather(*troubles: Trouble) -> LabWeather:
    """One spell of these, as short as can be."""
    made = LabWeather(Cell("redis", Operation.KEYED, troubles, 7), isolated=False)
    made._spells = (Spell(tuple(map(Part, troubles)), 0.0),)
    made._store = AsyncMemoryStore()
    made._base = SqliteFile("sqlite", Path("nowhere"))
    return made


@pytest.mark.parametrize("drawn", [(Trouble.DISK_FULL, Trouble.SLOW_DISK), (Trouble.SLOW_DISK, Trouble.DISK_FULL)])
def test_a_disk_is_full_when_what_it_would_end_has_struck(drawn: tuple[Trouble, Trouble]) -> None:
    """R42: a database may go down of a full disk, and flushes no more; so the slow disk is felt before it is full."""
    told: list[str] = []
    made = weather(*drawn)
    made.troubles = {trouble: Noted(trouble, told) for trouble in drawn}
    asyncio.run(made.befall(0, NOBODY))
    assert told == [
        "slow-disk begins", "slow-disk is waited for", "disk-full begins", "disk-full ends", "slow-disk ends",
    ]  # fmt: skip


def test_a_slow_disk_is_waited_for_until_it_has_struck(tmp_path: Path) -> None:
    """R42: however long the next flush is in coming."""

    async def trial() -> None:
        world = World(tmp_path / "world")
        trouble = SlowDisk(world)
        await trouble.begin(Part(Trouble.SLOW_DISK, "", 0.05))
        waiting = asyncio.create_task(trouble.struck())
        await asyncio.sleep(0)
        assert not waiting.done()
        # As the library counts them.
        world._memory[16:32] = (1).to_bytes(8, "little") + (60_000_000).to_bytes(8, "little")
        await waiting
        await trouble.end()
        assert (trouble.blows, trouble.unfelt) == (1, 0)

    asyncio.run(trial())


def test_a_disk_has_something_to_flush_whatever_the_storm_has_left_to_do() -> None:
    """R42: keys of nobody's are claimed and released, and what fails is tried again."""

    class Failing(AsyncMemoryStore):
        claims = 0
        released = asyncio.Event()

        async def claim(self, claim: Claim) -> Claimed | Existing:
            self.claims += 1
            if self.claims == 1:
                raise TimeoutError
            return await super().claim(claim)

        async def release(self, own: Ownership) -> None:
            await super().release(own)
            self.released.set()

    async def trial() -> None:
        store = Failing()
        writing = asyncio.create_task(keep_writing(store))
        async with asyncio.timeout(60):
            await store.released.wait()
        assert store.claims >= 2
        assert (await store.outstanding()).records == ()
        writing.cancel()

    asyncio.run(trial())


def test_what_goes_on_beside_ends_with_its_spell() -> None:
    """R42: also where a driver took the cancellation for a failure of the network, which is what fails just then."""

    class Swallowing(AsyncMemoryStore):
        asked = asyncio.Event()

        async def now(self) -> Instant:
            self.asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise StoreUnavailableError("the connection is lost") from None
            raise AssertionError("nobody answers")

    async def trial() -> None:
        store = Swallowing()
        asking = asyncio.create_task(keep_asking(store))
        await store.asked.wait()
        asking.cancel()
        await asyncio.wait_for(asyncio.wait({asking}), 60)
        assert asking.done()

    asyncio.run(trial())
