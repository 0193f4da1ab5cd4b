"""What time it is at DynamoDB, which has no clock that a condition or an update could name.

Theory of operation. Every answer of DynamoDB carries a Date: its own clock, cut to the whole second, read at some
moment between our sending and our receiving. Each answer so bounds by how much its clock is ahead of our steady one,
and the bounds of several answers narrow one another down: after a few dozen to about a round trip. What is left is a
window, from `earliest` to `latest`. An end is written from the latest that it may be, and judged by the earliest: no
lease and no retention ends early by DynamoDB's clock, and none ends later than the window is wide.

The clock of the machine we run on is never asked what time it is. It only serves to notice that the steady clock stood
still, as in a machine that was suspended; then everything is measured anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Final, NamedTuple, Protocol

from twicesafe.core.record import Instant, Micros

SECOND: Final[Micros] = 1_000_000

SKEW: Final[Micros] = 100_000
"""What the clocks of DynamoDB's many front ends are taken to differ by at most. AWS keeps them within milliseconds."""

DRIFT: Final = 5000
"""Our steady clock is taken to be off by at most a part in so many: more than any clock that anybody disciplines."""

STOOD_STILL: Final[Micros] = 500_000
"""A difference between the machine's two clocks that no discipline explains."""


class Window(NamedTuple):
    """The store's now is neither before `earliest` nor after `latest`."""

    earliest: Instant
    latest: Instant


class Clock(Protocol):
    """What a store goes by."""

    def ticks(self) -> Micros:
        """A steady count that only differences of mean anything."""

    def observe(self, date: str | None, sent: Micros, received: Micros) -> bool:
        """An answer came, with this Date. False where what was known before cannot have been right."""

    def window(self) -> Window | None:
        """None where nothing is known yet, or any more."""


def steady_clock() -> Micros:
    """Counts on while the machine sleeps, where there is a clock that does."""
    return time.clock_gettime_ns(_STEADY) // 1000


def machine_clock() -> Micros:
    """The clock on the machine's wall, as wrong as it may be."""
    return time.time_ns() // 1000


_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class DateClock:
    """DynamoDB's clock, as far as its answers tell. For any number of threads."""

    def __init__(
        self, *, steady: Callable[[], Micros] = steady_clock, machine: Callable[[], Micros] = machine_clock
    ) -> None:
        self.ticks = steady
        self._machine = machine
        self._lock = Lock()
        self._known: tuple[Micros, Micros, Micros] | None = None
        """By how much DynamoDB's clock is ahead of the steady one: at least, at most, and as of when."""
        self._apart: Micros = 0
        """By how much the machine's clock was ahead of the steady one then."""

    def observe(self, date: str | None, sent: Micros, received: Micros) -> bool:
        """See Clock.observe. An answer without a Date tells nothing."""
        instant = _instant(date)
        if instant is None:
            return True
        least, most = instant - received, instant + SECOND - sent
        with self._lock:
            known = None if self._known is None else self._bounds(received)
            apart, before = self._machine() - self.ticks(), self._apart
            self._apart = apart
            wrong = known is not None and (least > known[1] + SKEW or most < known[0] - SKEW)
            if known is None or wrong or abs(apart - before) > STOOD_STILL:
                self._known = least, most, received
                return not wrong
            least, most = max(least, known[0]), min(most, known[1])
            # Two front ends that do not quite agree: the truth is between them.
            self._known = min(least, most), max(least, most), received
            return True

    def window(self) -> Window | None:
        """See Clock.window."""
        with self._lock:
            now = self.ticks()
            if self._known is None or abs(self._machine() - now - self._apart) > STOOD_STILL:
                return None
            least, most = self._bounds(now)
            return Window(now + least, now + most + SKEW)

    def _bounds(self, at: Micros) -> tuple[Micros, Micros]:
        assert self._known is not None
        least, most, since = self._known
        drift = max(0, at - since) // DRIFT
        return least - drift, most + drift


class GivenClock:
    """A clock that somebody else keeps, and that is exact. For tests."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now

    def ticks(self) -> Micros:
        """See Clock.ticks."""
        return 0

    def observe(self, date: str | None, sent: Micros, received: Micros) -> bool:  # noqa: ARG002 - it knows better
        """See Clock.observe."""
        return True

    def window(self) -> Window:
        """See Clock.window."""
        now = self._now()
        return Window(now, now)


def _instant(date: str | None) -> Instant | None:
    """An HTTP date in microseconds since the epoch."""
    if not date:
        return None
    try:
        return int(parsedate_to_datetime(date).timestamp()) * SECOND
    except (ValueError, TypeError, OverflowError):
        return None
