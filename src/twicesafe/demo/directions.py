"""What a server process is told while it serves: to go on with what it holds, and that time has passed.

A page has no switch for either. They are for whoever checks the demo and will not wait: `twicesafe check --demo safe`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from twicesafe.core.record import Instant
from twicesafe.stores.sqlite_connection import host_clock

LONGEST: Final = 60.0
"""Seconds after which what is held goes on by itself."""


class Direction(StrEnum):
    """What can be told."""

    GO = "go"
    """Go on with the request of this name, now or whenever it is held."""
    AHEAD = "ahead"
    """The clock of keys is so many seconds ahead from now on."""


def written(direction: Direction, note: str) -> bytes:
    """A direction as it goes down the process's standard input."""
    return json.dumps([direction, note]).encode() + b"\n"


class Directions:
    """Those of one process. `report` says upwards what is held, and by how much the clock is ahead."""

    def __init__(self, ahead: float, report: Callable[[str, str], None]) -> None:
        self._ahead = ahead
        self._report = report
        self._let_go: set[str] = set()
        self._held: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}

    def clock(self) -> Instant:
        """The time by which keys are kept."""
        return host_clock() + round(self._ahead * 1_000_000)

    async def hold(self, name: str) -> None:
        """Wait until the request of this name is let go."""
        going = asyncio.Event()
        self._held[name] = asyncio.get_running_loop(), going
        try:
            self._report("holding", name)
            if name not in self._let_go:
                async with asyncio.timeout(LONGEST):
                    await going.wait()
        except TimeoutError:
            return
        finally:
            self._held.pop(name, None)

    def follow(self, descriptor: int) -> None:
        """Do what comes down a pipe, in a thread of its own, until the pipe ends."""
        with os.fdopen(descriptor, "rb") as told:
            for line in told:
                direction, note = json.loads(line)
                if direction == Direction.GO:
                    self._go(note)
                else:
                    self._ahead = float(note)
                    self._report("ahead", note)

    def _go(self, name: str) -> None:
        self._let_go.add(name)
        if (held := self._held.get(name)) is not None:
            loop, going = held
            loop.call_soon_threadsafe(going.set)
