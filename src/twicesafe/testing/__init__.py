"""Proofs for whoever writes a store, or works with time: free of any test framework."""

from __future__ import annotations

from twicesafe.testing.checks import CHECKS
from twicesafe.testing.clock import ManualClock
from twicesafe.testing.cut import Cut, cut_at
from twicesafe.testing.results import CheckResult, Outcome, StoreCheckError, result_table
from twicesafe.testing.stores import acheck_store, check_store
from twicesafe.testing.subject import MakeStore, StoreUnderTest

__all__ = [
    "CHECKS",
    "CheckResult",
    "Cut",
    "MakeStore",
    "ManualClock",
    "Outcome",
    "StoreCheckError",
    "StoreUnderTest",
    "acheck_store",
    "check_store",
    "cut_at",
    "result_table",
]
