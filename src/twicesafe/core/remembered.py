"""How long a server can be trusted to know a key: the one rule for calls, for retries, and for intents after a restart.

A retry under a key that its server has forgotten is a new operation.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from twicesafe.errors import ConfigurationError

LONGEST_MARGIN: Final = timedelta(minutes=1)
"""How long before the server forgets a key that is no longer sent: it has to arrive while it is known. On its way a
request waits for a connection, a slow network, a busy front; most clients give up within 30 s. And two clocks tell the
window, which drift apart by seconds a day at worst. Of a short window the margin is a tenth."""


def sending_window(retention: timedelta) -> timedelta:
    """For how long after it was first sent a key may be sent again. `retention` is the server's, counted from then."""
    return retention - min(retention // 10, LONGEST_MARGIN)


def checked_retention(name: str, retention: object) -> None:
    """ConfigurationError unless it is a timedelta above 0, or None where nobody knows."""
    if retention is not None and (not isinstance(retention, timedelta) or retention <= timedelta(0)):
        raise ConfigurationError(f"{name} must be a timedelta above 0, or None for no memory, not {retention!r}")
