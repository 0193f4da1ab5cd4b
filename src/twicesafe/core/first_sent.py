"""When a request was first sent, as its caller says: a second header beside the key (OASIS Repeatable Requests 1.0).

A key whose record has been purged is a new key, and runs. One that says when it was first sent is refused by then: what
may have been forgotten is never run again. So a key has to be remembered for twice the window, because a caller's clock
may be ahead by as much as it may be behind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from twicesafe.errors import ConfigurationError, FirstSentExpiredError, FirstSentInvalidError

_FIXDATE: Final = re.compile(
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT"
)
_MONTHS: Final = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")


class FirstSent(NamedTuple):
    """Which header says it, and how far from now that may be."""

    header: str = "Repeatability-First-Sent"
    within: timedelta = timedelta(minutes=5)

    @property
    def header_name(self) -> bytes:
        """In lower case, as ASGI spells header names."""
        return self.header.lower().encode("ascii")

    def check_rule(self, key_retention: timedelta) -> None:
        """ConfigurationError for a rule that cannot hold."""
        header: object = self.header
        within: object = self.within
        if not (
            isinstance(header, str) and header and isinstance(within, timedelta) and within >= timedelta(seconds=1)
        ):
            raise ConfigurationError(f"first_sent must be a FirstSent with a header and a time, not {self!r}")
        if key_retention < 2 * self.within:
            raise ConfigurationError(
                f"key_retention must be twice the window of first_sent, {2 * self.within}: "
                "otherwise a key could be forgotten while requests under it are still taken"
            )

    def check(self, lines: Sequence[bytes], now: float, *, keyed: bool) -> None:
        """Refuse a request whose header's lines are these. RequestError; `now` is in seconds since the Unix epoch.

        Without a key it must not have the header either: its sender believes it to be repeatable.
        """
        if not keyed:
            if lines:
                raise FirstSentInvalidError(f"{self.header} was sent without a key: send both, or neither")
            return
        if len(lines) != 1:
            raise FirstSentInvalidError(f"{self.header} must be sent with the key, once")
        sent = imf_fixdate(lines[0])
        if sent is None:
            raise FirstSentInvalidError(f"{self.header} must be a time such as Sun, 06 Nov 1994 08:49:37 GMT")
        if abs(now - sent) > self.within.total_seconds():
            raise FirstSentExpiredError(
                f"{self.header} is more than {self.within} from now: what was asked for may have been done and "
                "forgotten. Look whether it was before asking under a new key"
            )


def imf_fixdate(line: bytes) -> float | None:
    """An HTTP date in its preferred form (RFC 9110, 5.6.7), as seconds since the Unix epoch; None for other text."""
    found = _FIXDATE.fullmatch(line.strip(b" \t"))
    if found is None or found[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(found[part]) for part in (1, 3, 4, 5, 6))
    try:
        date = datetime(year, _MONTHS.index(found[2]) + 1, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return date.timestamp()
