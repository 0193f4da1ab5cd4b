"""Blocking reads that end in time, however the answer comes: byte by byte, or behind one interim answer after another.

httpcore looks up how long a read may take when the head's reading begins, and gives each of its reads as long. So each
connection that is made here is watched: whatever reads from it gets what is left of the attempt that its thread makes.
"""

from __future__ import annotations

from contextlib import suppress
from threading import local
from typing import Any, Protocol


class Limits(Protocol):
    """How long an attempt may take."""

    def left(self) -> float:
        """Seconds; inf for as long as one likes."""


class _Reading(local):
    limits: Limits | None = None


_reading = _Reading()


def read_within(limits: Limits | None) -> Limits | None:
    """From now on reads of this thread end within these limits. What was there before: to be put back."""
    before, _reading.limits = _reading.limits, limits
    return before


def watch(stream: Any) -> None:
    """Let reads from this network stream of httpcore's end within the limits of their thread. None: there is none."""
    if stream is None:
        return
    read = stream.read

    def read_in_time(max_bytes: int, timeout: float | None = None) -> Any:
        limits = _reading.limits
        if limits is not None:
            left = limits.left()
            if left <= 0.0:
                raise TimeoutError("the time for this attempt was over")
            if timeout is None or left < timeout:
                timeout = left if left < float("inf") else timeout
        return read(max_bytes, timeout)

    # A backend of somebody's own may have streams that nothing can be put on.
    with suppress(AttributeError):
        stream.read = read_in_time
