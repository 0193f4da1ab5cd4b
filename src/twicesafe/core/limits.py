"""How much its callers may make a server remember, and how many of them may wait there."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from twicesafe.core.record import Micros
from twicesafe.errors import ConfigurationError

_MICROSECOND: Final = timedelta(microseconds=1)
LONGEST_WINDOW: Final = timedelta(days=366)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one process takes on. Operations of one shell under equal limits share what these allow.

    `new_keys` is how many keys one caller may use for the first time `within` a window, `new_keys_in_all` how many all
    callers together may; None is any number. Whoever has used up theirs is told 429 `too-many-keys`: nothing ran, and
    nothing is remembered of it. A key that is known is dealt with all the same, whatever its caller has used up.

    Half of `new_keys_in_all` is kept for regular callers: those who have been here for a window without running into
    their own limit. A crowd of newcomers gets no more than the other half.

    `callers` is how many newcomers, and how many regular callers, are remembered; a few hundred bytes each. Whoever has
    not come for longest is forgotten first, and is a newcomer when they come again.

    `waiters` is how many duplicates of one caller may wait for a first attempt (see Policy.wait), `waiters_in_all` how
    many of all callers. Whoever finds no place is told 409 at once, as if there were no waiting.
    """

    new_keys: int | None = None
    new_keys_in_all: int | None = None
    within: timedelta = timedelta(minutes=1)
    callers: int = 10_000
    waiters: int = 100
    """A browser opens 6 connections, a gateway some dozens; a thread or a task waits for each."""
    waiters_in_all: int = 1_000

    within_us: Micros = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        within: object = self.within
        if not isinstance(within, timedelta) or not timedelta(seconds=1) <= within <= LONGEST_WINDOW:
            raise ConfigurationError(f"within must be a timedelta from a second to a year, not {within!r}")
        object.__setattr__(self, "within_us", self.within // _MICROSECOND)
        for name, least in (
            ("new_keys", 1),
            ("new_keys_in_all", 2),
            ("callers", 1),
            ("waiters", 0),
            ("waiters_in_all", 0),
        ):
            number = getattr(self, name)
            if number is None and name.startswith("new_keys"):
                continue
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= 1_000_000:
                raise ConfigurationError(f"{name} must be a number from {least} to 1,000,000, not {number!r}")

    @property
    def counts_keys(self) -> bool:
        """Whether new keys are counted at all."""
        return self.new_keys is not None or self.new_keys_in_all is not None
