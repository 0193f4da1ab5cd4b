"""Counts what happens, a minute at a time, in memory that does not grow.

    tally = Tally()
    safe = Idempotency(store, scope=current_user, observer=tally)

A store remembers what became of a key, and nothing of the duplicates that it turned away: those are counted here, by
the process that met them.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import Final, NamedTuple

from twicesafe.observe import Event, Observer, around, counts, log_events, tell, traces

MINUTES: Final = 24 * 60
"""How far back it counts."""
OPERATIONS: Final = 50
"""How many are told apart: their names may come from paths, which strangers make up."""
OTHERS: Final = "(others)"
"""Where the rest of them is counted."""
QUIET: Final = 60
"""Minutes after which an operation that nothing was told of makes room for another one."""
REMEMBERED: Final = 1000
"""Events that are kept one by one."""


class Kind(StrEnum):
    """What is counted."""

    REPLAY = "replays"
    CONFLICT = "conflicts"
    MISMATCH = "mismatches"
    UNKNOWN = "unknown outcomes"
    TAKEN_OVER = "take-overs"
    LOST = "leases lost"
    FAILED = "recordings failed"


KINDS: Final[Mapping[str, Kind]] = {
    "replayed": Kind.REPLAY,
    "replayed.without_body": Kind.REPLAY,
    "conflict": Kind.CONFLICT,
    "mismatch": Kind.MISMATCH,
    "outcome.unknown": Kind.UNKNOWN,
    "claim.taken_over": Kind.TAKEN_OVER,
    "lease.lost": Kind.LOST,
    "recording.failed": Kind.FAILED,
}
"""By the event's name. What is not here is not counted."""


class Met(NamedTuple):
    """One event, and when: in seconds since 1970, by this process's clock."""

    at: float
    name: str
    operation: str
    key_hint: str
    loud: bool


class Tally:
    """An observer that counts, and tells `also` of everything. Safe to share between threads.

    `clock` gives seconds since 1970; only tests have a reason to set it.
    """

    def __init__(self, also: Observer = log_events, *, clock: Callable[[], float] = time.time) -> None:
        self._also = also
        # What `also` is for is told to it as if it stood alone.
        self.counts = counts(also)
        if traces(also):
            self.around = partial(around, also)
        self._clock = clock
        self._guard = Lock()
        self._counts: dict[tuple[str, Kind], array[int]] = {}
        self._names: dict[str, int] = {}
        """When it was last told of them, in minutes; the longest ago comes first."""
        self._met: deque[Met] = deque(maxlen=REMEMBERED)
        self.since: Final = clock()
        self._minute = int(self.since // 60)
        self.total = 0
        """How often it was told anything that it counts."""

    def __call__(self, event: Event) -> None:
        """See Observer."""
        kind = KINDS.get(event.name)
        if kind is not None and event.operation_id is None:
            now = self._clock()
            # What a page can show and an address can hold, whatever it was made of.
            name = event.operation.encode("utf-8", "backslashreplace").decode()
            with self._guard:
                self._to(int(now // 60))
                self._counted(name, kind)[self._minute % MINUTES] += 1
                self._met.append(Met(now, event.name, name, event.key_hint, event.loud))
                self.total += 1
        tell(self._also, event)

    def numbers(self, kind: Kind, operation: str | None = None, minutes: int = 60) -> list[int]:
        """How often, in each of the last minutes, this one at the end; of one operation, or of all."""
        with self._guard:
            self._to(int(self._clock() // 60))
            found = [one for (name, what), one in self._counts.items() if what is kind and operation in (None, name)]
            places = [minute % MINUTES for minute in range(self._minute - min(minutes, MINUTES) + 1, self._minute + 1)]
            return [sum(one[place] for one in found) for place in places]

    def operations(self) -> list[str]:
        """Those that something was counted of."""
        with self._guard:
            return sorted({name for name, _ in self._counts if name})

    def met(self, operation: str, key_hint: str) -> list[Met]:
        """What is remembered of keys that look like this one, oldest first."""
        with self._guard:
            return [one for one in self._met if (one.operation, one.key_hint) == (operation, key_hint)]

    def _to(self, minute: int) -> None:
        """Let it be this minute. A clock that goes back is waited for."""
        for passed in range(self._minute + 1, min(minute, self._minute + MINUTES) + 1):
            for one in self._counts.values():
                one[passed % MINUTES] = 0
        self._minute = max(self._minute, minute)

    def _counted(self, operation: str, kind: Kind) -> array[int]:
        if self._names.pop(operation, None) is None and not self._has_room():
            operation = OTHERS
        else:
            self._names[operation] = self._minute
        return self._of(operation, kind)

    def _has_room(self) -> bool:
        """For one more name: where all are taken, that of an operation that has been quiet. Others count as before."""
        if len(self._names) < OPERATIONS:
            return True
        oldest, seen = next(iter(self._names.items()))
        if self._minute - seen < QUIET:
            return False
        del self._names[oldest]
        for kind in Kind:
            left = self._counts.pop((oldest, kind), None)
            if left is not None:
                others = self._of(OTHERS, kind)
                others[:] = array("L", map(int.__add__, others, left))
        return True

    def _of(self, operation: str, kind: Kind) -> array[int]:
        return self._counts.setdefault((operation, kind), array("L", bytes(MINUTES * array("L").itemsize)))
