"""What a look through all records comes to, gathered a page at a time.

Theory of operation. A store has no index for what people ask of it here, so the records are looked through as they lie,
a few thousand in a transaction, for as long as somebody looks at the dashboard. Small tables are seen whole each time;
of a large one each round sees a part, and the page says how far. What is kept is bounded, whatever the table
holds: counts, minutes, and a number of records of each standing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from math import log10
from threading import Lock
from typing import Any, Final, NamedTuple

from twicesafe.core.lifecycle import Standing
from twicesafe.core.record import Instant
from twicesafe.dashboard.reading import AT_A_TIME, Seen, records
from twicesafe.dashboard.tally import MINUTES, OPERATIONS, OTHERS

LISTED: Final = 1_000
"""Records of one standing that are kept, the oldest of them."""
PAGES: Final = 15
"""Read in one round."""

BINS: Final = 90
PER_DECADE: Final = 10
"""A bin for a tenth of a decade of microseconds: a latency is told within 13 percent."""

WAITING: Final = (Standing.UNKNOWN, Standing.STALE, Standing.ANSWERED, Standing.CLAIMED)
"""Standings that are not settled."""

_MINUTE: Final = 60_000_000


class Runs:
    """First runs of one operation, by the minute in which they were completed, and how long they took."""

    __slots__ = ("bins", "minutes")

    def __init__(self) -> None:
        self.minutes = array("L", bytes(MINUTES * array("L").itemsize))
        self.bins = array("L", bytes(BINS * array("L").itemsize))

    def copy(self) -> Runs:
        """The same numbers."""
        same = Runs()
        same.minutes, same.bins = self.minutes[:], self.bins[:]
        return same


class Latency(NamedTuple):
    """How long first runs took, in microseconds."""

    number: int
    half: float | None
    most: float | None
    """What 95 of 100 did not exceed."""
    bins: tuple[int, ...]


class Sight:
    """What was seen in one look."""

    def __init__(self, now: Instant) -> None:
        self.began: Final = now
        self.ended: Instant | None = None
        """None while it is under way."""
        self.looked = 0
        self.standings: Counter[tuple[str, Standing]] = Counter()
        self._runs: dict[str, Runs] = {}
        self._listed: dict[Standing, list[Seen]] = {one: [] for one in WAITING}

    def so_far(self) -> Sight:
        """The same, which further records are not added to: pages are drawn in other threads than it grows in."""
        same = Sight(self.began)
        same.looked, same.standings = self.looked, Counter(self.standings)
        same._runs = {name: runs.copy() for name, runs in self._runs.items()}
        same._listed = {standing: list(listed) for standing, listed in self._listed.items()}
        return same

    def add(self, found: Iterable[Seen]) -> None:
        """These were seen, too."""
        newest = self.began // _MINUTE
        for one in found:
            self.looked += 1
            name = self._name(one.operation)
            self.standings[name, one.standing] += 1
            if one.standing is not Standing.COMPLETED:
                self._list(one)
                continue
            ago = newest - one.lease_until // _MINUTE
            if -1 <= ago < MINUTES:
                runs = self._runs.setdefault(name, Runs())
                # One that was completed since the look began is of its first minute.
                runs.minutes[MINUTES - 1 - max(0, ago)] += 1
                if one.epoch == 1:
                    runs.bins[_bin(one.lease_until - one.created_at)] += 1

    def _name(self, operation: str) -> str:
        if operation in self._runs or len({name for name, _ in self.standings}) < OPERATIONS:
            return operation
        return operation if any((operation, one) in self.standings for one in Standing) else OTHERS

    def _list(self, one: Seen) -> None:
        listed = self._listed[one.standing]
        listed.append(one)
        if len(listed) >= 2 * LISTED:
            listed.sort(key=_age)
            del listed[LISTED:]

    def listed(self, standing: Standing, operation: str = "") -> list[Seen]:
        """The oldest of this standing, the oldest first; LISTED at most."""
        apart = set(self.operations()) if operation == OTHERS else ()
        found = (
            one
            for one in self._listed[standing]
            if operation in ("", one.operation) or (operation == OTHERS and one.operation not in apart)
        )
        return sorted(found, key=_age)[:LISTED]

    def count(self, *standings: Standing, operation: str = "") -> int:
        """How many there are, of one operation or of all."""
        return sum(
            number for (name, one), number in self.standings.items() if one in standings and operation in ("", name)
        )

    def oldest(self) -> Seen | None:
        """Of all that is not settled, what was claimed first."""
        return min((one for listed in self._listed.values() for one in listed), key=_age, default=None)

    def operations(self) -> list[str]:
        """All that have records."""
        return sorted({name for name, _ in self.standings})

    def minutes(self, operation: str = "", minutes: int = 60) -> list[int]:
        """First runs completed in each of the last minutes, this one at the end."""
        found = [runs for name, runs in self._runs.items() if operation in ("", name)]
        return [sum(runs.minutes[place] for runs in found) for place in range(MINUTES - minutes, MINUTES)]

    def latency(self, operation: str = "") -> Latency:
        """Of first runs of the last day."""
        found = [runs.bins for name, runs in self._runs.items() if operation in ("", name)]
        bins = tuple([sum(one[place] for one in found) for place in range(BINS)])
        return Latency(sum(bins), _share(bins, 0.5), _share(bins, 0.95), bins)

    def without(self, digest: bytes) -> None:
        """Somebody has changed this record: it is not what was seen."""
        for standing, listed in self._listed.items():
            for one in listed:
                if one.digest == digest:
                    self.standings[self._name(one.operation), standing] -= 1
            listed[:] = [one for one in listed if one.digest != digest]

    def signature(self) -> tuple[Mapping[Any, int], int]:
        """Differs where what is seen differs."""
        return dict(self.standings), self.looked


class Look:
    """Looks through the records of a store, round after round. For threads: one round at a time."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._guard = Lock()
        self._under_way: Sight | None = None
        self._after: Any = None
        self.sight: Sight | None = None
        """The last whole look; the first one while it is under way."""

    def round(self) -> Sight:
        """Look at as many records as one round may, or at all; what is known by then."""
        with self._guard:
            now: Instant = self._store.now()
            sight = self._under_way or Sight(now)
            for _ in range(PAGES):
                page = records(self._store, self._after, now)
                sight.add(page.seen)
                self._after = page.after
                if page.after is None:
                    break
            if self._after is None:
                sight.ended = now
                self._under_way, self.sight = None, sight
            else:
                self._under_way = sight
                if self.sight is None or self.sight.ended is None:
                    self.sight = sight.so_far()
            return self.sight

    def without(self, digest: bytes) -> None:
        """See Sight.without."""
        with self._guard:
            for sight in {self.sight, self._under_way} - {None}:
                assert sight is not None
                sight.without(digest)


IN_A_ROUND: Final = PAGES * AT_A_TIME


def _age(one: Seen) -> Instant:
    return one.created_at


def _bin(us: int) -> int:
    return 0 if us < 1 else min(BINS - 1, int(log10(us) * PER_DECADE))


def _share(bins: tuple[int, ...], share: float) -> float | None:
    """What this share of them did not exceed; the middle of its bin."""
    wanted = sum(bins) * share
    passed = 0
    for place, number in enumerate(bins):
        passed += number
        if number and passed >= wanted:
            return float(10 ** ((place + 0.5) / PER_DECADE))
    return None
