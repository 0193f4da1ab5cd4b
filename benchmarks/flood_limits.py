"""The limits that benchmarks.flood measures."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from twicesafe import Limits

WITHIN: Final = 10
"""Seconds of their window: short, so that a run shows several."""
LIMITS: Final = Limits(new_keys=50, new_keys_in_all=1_000, within=timedelta(seconds=WITHIN))
