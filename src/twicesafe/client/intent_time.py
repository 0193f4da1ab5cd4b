"""What time it is for a file of intents: by the host's clock, unless that was set back.

The file has the latest time that it was ever shown. A clock that is behind it has lost some time, and nobody can say
how much: of every run that began before, it is not known how long ago that was. So their intents count as ones that
their servers may have forgotten. From then on the time is told anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from twicesafe.core.record import Instant, Micros
from twicesafe.core.runs import Run

AT_MOST_BACK: Final[Micros] = 1_000_000
"""A clock that is corrected by less was not set back: for so long the time stands still."""

_LONG_AGO: Final[Instant] = -(2**62)


class FileTime(NamedTuple):
    """At one moment."""

    now: Instant
    """No earlier than anything that was written since the clock was set back last."""
    before: int
    """Runs up to this number began before that."""
    since: Instant
    """When that was noticed, by the clock as it is since."""

    def judged(self, runs: Mapping[int, Run]) -> tuple[Run, ...]:
        """To say whether one may be sent again: what began before may have begun as long ago as can be."""
        return tuple(self._began(number, run, _LONG_AGO) for number, run in runs.items())

    def remembered(self, runs: Mapping[int, Run]) -> tuple[Run, ...]:
        """To say whether it is forgotten for certain: what began before may have begun just then."""
        return tuple(self._began(number, run, self.since) for number, run in runs.items())

    def settled(self, at: Instant) -> Instant:
        """When one was settled that says so of itself."""
        return at if at <= self.now else self.since

    def _began(self, number: int, run: Run, at: Instant) -> Run:
        return run._replace(began_at=at) if number <= self.before else run


def time_of(connection: sqlite3.Connection, clock: Callable[[], Instant], *, writes: bool) -> FileTime:
    """What time it is. To be asked in a transaction; one that writes remembers it."""
    mark, before, since = connection.execute("SELECT mark, before, since FROM clock").fetchone()
    # Read behind the file's: whoever waited for another process is not behind what that one wrote.
    now = clock()
    if now < mark - AT_MOST_BACK:
        (before,) = connection.execute("SELECT coalesce(max(run), 0) FROM runs").fetchone()
        since = now
    else:
        now = max(now, mark)
    if writes and now != mark:
        connection.execute("UPDATE clock SET mark = ?, before = ?, since = ?", (now, before, since))
    return FileTime(now, before, since)
