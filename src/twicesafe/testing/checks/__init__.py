"""Every check, chapter by chapter."""

from __future__ import annotations

from typing import Final

from twicesafe.testing.check import Check
from twicesafe.testing.checks.answers import CHAPTER as ANSWERS
from twicesafe.testing.checks.claiming import CHAPTER as CLAIMING
from twicesafe.testing.checks.owners import CHAPTER as OWNERS
from twicesafe.testing.checks.retention import CHAPTER as RETENTION
from twicesafe.testing.checks.stale import CHAPTER as STALE
from twicesafe.testing.checks.takeover import CHAPTER as TAKEOVER
from twicesafe.testing.checks.transactions import CHAPTER as TRANSACTIONS
from twicesafe.testing.checks.unknowns import CHAPTER as UNKNOWNS

CHECKS: Final[tuple[Check, ...]] = tuple(
    check
    for chapter in (CLAIMING, TAKEOVER, OWNERS, ANSWERS, UNKNOWNS, RETENTION, STALE, TRANSACTIONS)
    for check in chapter.filed
)
