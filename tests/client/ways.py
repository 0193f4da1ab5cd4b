"""What all bindings are given and give back in tests: time in which waiting takes none, limits, and what came of it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from twicesafe.client import Ambient, AsyncAmbient, Outcome, Report, RetryPolicy

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Made once: reading the machine's certificates is most of the cost of a client."""

WALL = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
"""The calendar's time in these tests."""


class Hours:
    """Time in which waiting takes none: `waits` are recorded, and the clock jumps. `asleep` is called at each.

    Each sleep takes `overslept` seconds longer than it was to.
    """

    def __init__(
        self, fraction: float = 0.5, asleep: Callable[[], object] = lambda: None, *, overslept: float = 0.0
    ) -> None:
        self.waits: list[float] = []
        self._fraction = fraction
        self._asleep = asleep
        self._overslept = overslept

    def clock(self) -> float:
        return time.monotonic() + sum(self.waits) + len(self.waits) * self._overslept

    def wall(self) -> float:
        return WALL

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._asleep()

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)

    @property
    def ambient(self) -> Ambient:
        return Ambient(clock=self.clock, wall=self.wall, sleep=self.sleep, fraction=lambda: self._fraction)

    @property
    def async_ambient(self) -> AsyncAmbient:
        return AsyncAmbient(clock=self.clock, wall=self.wall, sleep=self.asleep, fraction=lambda: self._fraction)


class Result(NamedTuple):
    """What came of it. `outcome` is None through a transport, which has no place for one."""

    outcome: Outcome[Any] | None
    response: Any
    error: BaseException | None
    report: Report | None


QUICK = RetryPolicy(deadline=timedelta(seconds=20), attempt_timeout=timedelta(seconds=5))
