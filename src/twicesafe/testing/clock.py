"""A clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from twicesafe.core.record import Instant

START: Final[Instant] = 1_790_000_000_000_000
"""Some day in 2026; far from zero, so that a forgotten unit shows."""

_MICROSECOND: Final = timedelta(microseconds=1)


class ManualClock:
    """Called, it tells the time in microseconds since the epoch. Give it to a store as its clock.

    A store whose clock lives elsewhere (in a database, say) is told through `watch`.
    """

    def __init__(self, start: Instant = START) -> None:
        self._now = start
        self._watchers: list[Callable[[Instant], object]] = []

    def __call__(self) -> Instant:
        return self._now

    def advance(self, by: timedelta) -> None:
        """Move on; backwards is refused, because no store promises anything there."""
        if by < timedelta(0):
            raise ValueError("a ManualClock moves forwards only")
        self._now += by // _MICROSECOND
        for tell in self._watchers:
            tell(self._now)

    def watch(self, tell: Callable[[Instant], object]) -> None:
        """Call `tell` with the time, now and after every move."""
        self._watchers.append(tell)
        tell(self._now)
