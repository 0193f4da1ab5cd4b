"""How much a memory store takes, and for how long."""

from __future__ import annotations

from time import time_ns
from typing import Final

from twicesafe.core.record import Instant
from twicesafe.errors import ConfigurationError

RECORDS: Final = 1_000_000
"""Some 700 MB with small answers. A process that has more to remember wants a store that outlives it."""
BYTES: Final = 1 << 30
"""Completed records and the bodies of their answers."""
FULL: Final = "this memory store is full: no new key is taken until some of its records have expired"


def wall_clock() -> Instant:
    """The system's clock. It is a memory store's own: nobody else judges its records (I12)."""
    return time_ns() // 1000


def check_room(records_at_most: object, bytes_at_most: object) -> None:
    """ConfigurationError for a bound that is none."""
    for name, given in (("records_at_most", records_at_most), ("bytes_at_most", bytes_at_most)):
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise ConfigurationError(f"{name} must be a number, 1 or more, not {given!r}")
