"""The suite's own search for secrets finds what it is there to find."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests import planted
from twicesafe.observe import Event, log_events

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("secret", "where"), planted.PLANTED.items())
def test_the_suite_uses_what_is_looked_for(secret: str, where: str) -> None:
    """R22: each secret that is looked for in all logs is one that some fixture plants."""
    assert secret in (ROOT / where).read_text(encoding="utf-8")


def test_an_event_below_the_logs_level_is_found() -> None:
    """R22: what would be written at debug level is looked at, and what holds a whole key is found."""
    log_events(Event("mismatch", "charge", "k-0001-0001-0001", loud=False))
    assert len(planted._found) == 1 and "k-0001-0001-0001" not in planted._found[0]
    planted._found.clear()
    log_events(Event("mismatch", "charge", "…0001", loud=False))
    assert planted._found == []


def test_what_another_error_says_is_found() -> None:
    """R22: an exception that is logged with its traceback is looked at with the texts of its causes."""
    try:
        raise LookupError("under " + "k-0001-0001-0001")
    except LookupError:
        logging.getLogger("twicesafe").exception("it raised")
    assert len(planted._found) == 1
    planted._found.clear()
