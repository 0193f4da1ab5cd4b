"""What stores that connect to a server are told alike, and what they say where they get no connection."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from twicesafe.errors import ConfigurationError, StoreUnavailableError

DEFAULT_TIMEOUT: Final = timedelta(seconds=10)
"""Longer than any statement of the store's takes, and short enough for its caller to be told something."""

DEFAULT_POOL_SIZE: Final = 10
"""What asyncpg's and most other pools begin with. A server has some 100 connections for all processes together."""

_SCHEME = re.compile(r"\s*[A-Za-z][\w+.-]*://")
_PASSWORD = re.compile(r"(?<=://)([^:@/?#]*):.*@", re.DOTALL)
"""Up to the last @ that there is: a password whose own @, / or ? are not written %40, %2F and %3F must not show either.
Where one stands behind the host, in an option, more is hidden than has to be."""
_SECRETS = re.compile(r"([?&]\w*password=)[^&]*")
_WORDS = re.compile(r"(\b(?:password|sslpassword)\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)+)", re.DOTALL)


def without_password(dsn: str) -> str:
    """A DSN as messages may show it: a URL, or libpq's words."""
    if _SCHEME.match(dsn) is not None:
        return _SECRETS.sub(r"\1***", _PASSWORD.sub(r"\1:***@", dsn))
    return _WORDS.sub(r"\1***", dsn)


def seconds(timeout: timedelta) -> float:
    """ConfigurationError unless it is a wait that comes to an end."""
    given: object = timeout
    if not isinstance(given, timedelta) or given <= timedelta(0):
        raise ConfigurationError(f"timeout must be a timedelta above 0, not {given!r}")
    return given.total_seconds()


def no_entry(url: str, error: BaseException) -> StoreUnavailableError:
    """The server cannot be reached, or lets nobody in."""
    return StoreUnavailableError(f"no connection to {url}: {str(error).strip() or type(error).__name__}")


def no_connection(waited: float) -> StoreUnavailableError:
    """Every connection of the pool was busy for too long, or the server is."""
    return StoreUnavailableError(
        f"no connection within {waited:g} s: the server does not answer, or the pool is too small for what runs at once"
    )
