"""Retry-After: how long the server asks to be left alone (RFC 9110, 10.2.3). Nothing it can hold raises."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from twicesafe.core.problems import RETRY_AFTER

_SECONDS: Final = re.compile(rb"(\d++)(\.\d++)?")
"""The standard has whole seconds only; fractions are sent all the same, and their meaning is plain. It gives nothing
back: a line as long as a head may be would take minutes."""

_LONGEST: Final = 9
"""More digits than this are more than thirty years."""


def retry_after(headers: Sequence[tuple[bytes, bytes]], wall: float) -> float | None:
    """Seconds to wait, 0 or more, or None where no line makes sense. Of several lines the longest wait counts.

    A date is measured from the answer's own Date, so that a clock that is off by an hour moves nothing; `wall`, the
    caller's seconds since the Unix epoch, stands in where the server has no clock.
    """
    found = None
    for name, line in headers:
        if len(name) == 11 and name.lower() == RETRY_AFTER:
            wait = _seconds(line.strip(), headers, wall)
            if wait is not None and (found is None or wait > found):
                found = wait
    return found


def _seconds(line: bytes, headers: Sequence[tuple[bytes, bytes]], wall: float) -> float | None:
    number = _SECONDS.fullmatch(line)
    if number is not None:
        digits = number[1].lstrip(b"0") or b"0"
        if len(digits) > _LONGEST:
            return math.inf
        return float(digits + (number[2] or b"")[:_LONGEST])
    until = _date(line)
    if until is None:
        return None
    dates = [date for name, value in headers if name.lower() == b"date" and (date := _date(value)) is not None]
    return max(0.0, until - (dates[0] if dates else wall))


def _date(line: bytes) -> float | None:
    """An HTTP date as seconds since the Unix epoch."""
    if not 10 < len(line) < 64:
        return None
    try:
        date = parsedate_to_datetime(line.decode("ascii").strip())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    try:
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
