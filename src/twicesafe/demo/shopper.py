"""Who is shopping: a random identity in a cookie that the server sets and no script can read.

It stands for whatever an application knows its callers by. The idempotency keys of one shopper mean nothing to another.
"""

from __future__ import annotations

import re
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Final

COOKIE: Final = "shopper"
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")


def new_shopper() -> str:
    """An identity that nobody has."""
    return secrets.token_hex(16)


def shopper_in(cookies: str) -> str:
    """Who is shopping, by the request's Cookie header; empty where it does not say."""
    try:
        found = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None or _IDENTITY.fullmatch(found.value) is None else found.value


def cookie(shopper: str) -> str:
    """The Set-Cookie line."""
    return f"{COOKIE}={shopper}; Path=/; HttpOnly; SameSite=Strict"
