"""What a trouble is: it begins, ends, and says by what figures it is known to have struck."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from twicesafe.storm.chaos.plan import Part

PATIENCE: Final = 15.0
"""Seconds beyond its own for which a trouble goes on until there is a sign of it, on a busy machine."""
LOOK: Final = 0.1
"""Seconds between two looks for one."""


class Met(Protocol):
    """One kind of trouble in one storm. `blows` says how often it came, `unfelt` how often without a sign that it did,
    and `figures` by what it was known."""

    blows: int
    unfelt: int
    figures: Counter[str]

    async def begin(self, part: Part) -> None:
        """From now on."""

    async def struck(self) -> None:
        """Return when there is a sign of it, or nobody can be expected to see one any more: before another begins that
        would keep it from striking."""

    async def end(self) -> None:
        """No longer."""

    async def look_back(self) -> None:
        """When all that came together has ended, and the database is there again."""


class Counted:
    """What every kind has."""

    def __init__(self) -> None:
        self.blows = 0
        self.unfelt = 0
        self.figures: Counter[str] = Counter()

    async def struck(self) -> None:
        """Nothing keeps it from that."""

    async def look_back(self) -> None:
        """Nothing more to be seen."""

    def count(self, *, felt: bool) -> None:
        """It has come once."""
        self.blows += 1
        self.unfelt += not felt


async def until(seen: Callable[[], Awaitable[bool]]) -> None:
    """Return when it is, or nobody can be expected to see it any more."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not await seen():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(LOOK)
