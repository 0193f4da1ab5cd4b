"""How long it is since something, by this process's own clock: also while the machine slept, where the system can tell.

For how long a lease is known to last, not for whether it does: that is the store's to say (I12).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from twicesafe.core.record import Micros

_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""On Linux the usual one stands still while the machine sleeps; on macOS it does not, and time.monotonic does."""


elapsed: Final[Callable[[], float]] = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
"""Seconds since some moment, which never fall."""


class KnownLease:
    """Until when nobody can have taken a claim over, as far as its owner knows without asking the store.

    `since` is by the clock of `elapsed`, before the claim was asked for: so it ends no later here than in the store.
    `renewed` gives the same of the last renewal by somebody else in this process; None where there was none.
    """

    __slots__ = ("_renewed", "_since", "lease_us")

    def __init__(self, lease_us: Micros, since: float, renewed: Callable[[], float | None] = lambda: None) -> None:
        self.lease_us = lease_us
        self._since = since
        self._renewed = renewed

    def given_anew(self, since: float) -> None:
        """The claim was renewed, by a request that began then."""
        self._since = max(self._since, since)

    def lasts(self, now: float) -> bool:
        """Whether nobody can have taken it over."""
        return now < self._given() + self.lease_us / 1_000_000

    def lasts_long(self, now: float) -> bool:
        """Whether half of it is left."""
        return now <= self._given() + self.lease_us / 2_000_000

    def _given(self) -> float:
        return max(self._since, self._renewed() or self._since)
