"""How much retrying a host can be asked to bear (R39).

Every retry costs, every success pays a part of a retry back, and a little comes back with time. While a server answers,
retries are then at most a tenth of what it is sent; when it stops answering, they stop too, instead of multiplying the
load that felled it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from twicesafe.errors import ConfigurationError


class Work(StrEnum):
    """Who is waiting. The two have budgets of their own, so that a batch cannot eat what a person needs."""

    INTERACTIVE = "interactive"
    BACKGROUND = "background"


class BudgetSize(NamedTuple):
    """What a budget holds when it is full, what each success pays, and what each second brings. In retries."""

    full: float
    per_success: float
    per_second: float

    def checked(self) -> BudgetSize:
        """This size, or ConfigurationError."""
        if not (self.full >= 0 and self.per_success >= 0 and self.per_second >= 0):
            raise ConfigurationError(f"a retry budget's numbers must be 0 or more, not {self}")
        return self


DEFAULT_SIZES: Final[Mapping[Work, BudgetSize]] = MappingProxyType(
    {
        # A burst that covers a restart of a small service, then a tenth of the traffic. The trickle, a retry in 50
        # seconds, lets a client that sends little recover without a success to pay for it; hundreds of them add little.
        Work.INTERACTIVE: BudgetSize(full=20.0, per_success=0.1, per_second=0.02),
        # Nobody is waiting: half the burst, half the share.
        Work.BACKGROUND: BudgetSize(full=10.0, per_success=0.05, per_second=0.01),
    }
)


class Budget(Protocol):
    """What one operation sees of the budget it shares. `now`: seconds on the caller's steady clock."""

    def take(self, cost: float, now: float) -> bool:
        """Pay for one retry. False, and nothing is paid, where it cannot be afforded."""

    def success(self, now: float) -> float:
        """An attempt succeeded: the host has some strength to spare. Returns what is left now."""

    def left(self, now: float) -> float:
        """What could be paid at `now`."""


class RetryBudget:
    """One bucket. Not for several threads at once: whoever shares it guards it."""

    __slots__ = ("_left", "_size", "_then")

    def __init__(self, size: BudgetSize, now: float) -> None:
        self._size = size.checked()
        self._left = size.full
        self._then = now

    def take(self, cost: float, now: float) -> bool:
        if self.left(now) < cost:
            return False
        self._left -= cost
        return True

    def success(self, now: float) -> float:
        self._left = min(self._size.full, self.left(now) + self._size.per_success)
        return self._left

    def left(self, now: float) -> float:
        if now > self._then:
            self._left = min(self._size.full, self._left + (now - self._then) * self._size.per_second)
            self._then = now
        return self._left

    def full(self, now: float) -> bool:
        """Whether it says no more than a new one would."""
        return self.left(now) >= self._size.full
