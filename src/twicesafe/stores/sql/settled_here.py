"""What this process has lately seen to be settled: where it is asked for again, looking first saves a round trip.

It is a guess about which way is shorter, never a decision: those are made on the row, whichever way finds it.
"""

from __future__ import annotations

from typing import Final

AT_LEAST: Final = 4096
"""So many are known, up to twice as many, in a megabyte. A retry comes within seconds, mostly over the connection that
its original came by."""


class SettledHere:
    """Digests, the latest of any number. For any number of threads: each step is one that Python does not divide."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now: set[bytes] = set()
        self._before: set[bytes] = set()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._now or digest in self._before

    def add(self, digest: bytes) -> None:
        """From now on it is known, until AT_LEAST others are added."""
        now = self._now
        now.add(digest)
        if len(now) >= AT_LEAST:
            self._before, self._now = now, set()
