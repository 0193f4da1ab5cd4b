"""The contract's checks, run on anybody's own database in a place that is made for them and thrown away."""

from __future__ import annotations

from twicesafe.checking.run import KEYS, Checked, Standing, check_stores

__all__ = ["KEYS", "Checked", "Standing", "check_stores"]
