"""Proofs for whoever writes a store, or works with time: free of any test framework."""

from __future__ import annotations

from twicesafe.testing.broker import BrokerFault, FakeBroker
from twicesafe.testing.checks import CHECKS
from twicesafe.testing.clock import ManualClock
from twicesafe.testing.cut import Cut, cut_at
from twicesafe.testing.cutting import Life, acut_everywhere, cut_everywhere
from twicesafe.testing.effects import OneEffect
from twicesafe.testing.intents import EffectsError, IntentBrokenError
from twicesafe.testing.results import CheckResult, Outcome, StoreCheckError, result_table
from twicesafe.testing.stores import acheck_store, check_store
from twicesafe.testing.subject import MakeStore, StoreUnderTest

__all__ = [
    "CHECKS",
    "BrokerFault",
    "CheckResult",
    "Cut",
    "EffectsError",
    "FakeBroker",
    "IntentBrokenError",
    "Life",
    "MakeStore",
    "ManualClock",
    "OneEffect",
    "Outcome",
    "StoreCheckError",
    "StoreUnderTest",
    "acheck_store",
    "acut_everywhere",
    "check_store",
    "cut_at",
    "cut_everywhere",
    "result_table",
]
