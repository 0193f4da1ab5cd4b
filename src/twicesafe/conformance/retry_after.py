"""What a Retry-After says: seconds, or a date on the clock of whoever wrote it."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from twicesafe.conformance.findings import Answer


def named_wait(answer: Answer) -> float | None:
    """The seconds to wait; None where there is no such line, or it says nothing that HTTP knows.

    A date is measured from the answer's own Date.
    """
    named = answer.value("Retry-After").strip()
    if named.isascii() and named.isdecimal():
        return float(named[:9])
    until, now = _date(named), _date(answer.value("Date"))
    if until is None:
        return None
    return max(0.0, (until - (now or datetime.now(UTC))).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
