"""What cannot be seen in an application: how it is served, and who asks it."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple


class Circumstances(NamedTuple):
    """What its operator knows."""

    workers: int = 1
    """Processes that serve it."""
    concurrency: int = 0
    """Requests that run at once in one process; 0 where nobody says."""
    horizon: timedelta = timedelta(hours=1)
    """How long after its first attempt an intent may be tried again, by whatever path."""
    longest: timedelta = timedelta(seconds=30)
    """How long a request may take."""
    patience: timedelta = timedelta(minutes=15)
    """How long something may wait for a worker, a relay, or a person."""
