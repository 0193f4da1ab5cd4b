"""Where a redirect may lead within one attempt, whatever library would follow it. A key never leaves its origin."""

from __future__ import annotations

from collections.abc import MutableMapping
from enum import Enum, auto
from typing import Final
from urllib.parse import urlsplit

from twicesafe.client.reports import sign_error
from twicesafe.core.outcome import Report
from twicesafe.errors import RedirectedElsewhereError

Origin = tuple[str, str, int | None]
"""Scheme, host and port, the scheme's own port written out."""

_PORTS: Final = {"http": 80, "https": 443}


class Onward(Enum):
    """What becomes of a redirect."""

    STAY = auto()
    """It is the answer."""
    GO = auto()
    GO_WITHOUT_KEY = auto()


def onward(
    status: int, method: str, origin: Origin, then_method: str, then_origin: Origin | None, *, keyed: bool
) -> Onward:
    """Whether to follow. `method` and `origin` are those of the operation, `then_...` those of the next request.

    Where that has no origin nobody can be asked, and the redirect is the answer.

    A page is not fetched instead of the effect: a 302 to a login, answered 200, is nothing done. 303 alone says that
    the effect was had and where to look at it. And the effect itself is not carried to an origin where its key names
    nothing.
    """
    if then_origin is None or (then_method != method and status != 303):
        return Onward.STAY
    if then_origin == origin or not keyed:
        return Onward.GO
    return Onward.GO_WITHOUT_KEY if then_method in _LOOKS else Onward.STAY


def leave_key(headers: MutableMapping[str, str], header: str, method: str, url: str, *, in_body: bool) -> None:
    """The client follows a redirect to another origin, as these headers say: the key stays behind.

    `in_body`: the operation has its key there. RedirectedElsewhereError where this is the effect itself, which would
    have no key: who redirects has not carried it out.
    """
    key = headers.get(header)
    if key is None and not in_body:
        return
    if method not in _LOOKS:
        scheme, host = urlsplit(url).scheme, netloc_at(url)
        error = RedirectedElsewhereError(
            f"the server redirects this {method} to {scheme}://{host}, where its key means nothing: it was not sent "
            "there. Send it where it belongs, or give it the contract that it has without a key"
        )
        sign_error(error, Report(key, ()))
        raise error
    if key is not None:
        del headers[header]


_LOOKS: Final = ("GET", "HEAD")
"""What only looks at what was done."""


def origin_at(url: str) -> Origin:
    """The origin of an address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def destination(url: str) -> Origin | None:
    """The origin of where a redirect leads; None where that is no address that can be asked."""
    try:
        origin = origin_at(url)
    except ValueError:
        return None
    return origin if origin[0] in _PORTS and origin[1] else None


def netloc_at(url: str) -> str:
    """Host and port of an address, without user and password, and without the scheme's own port."""
    scheme, host, port = origin_at(url)
    host = f"[{host}]" if ":" in host else host
    return host if port is None or port == _PORTS.get(scheme) else f"{host}:{port}"


def path_at(url: str) -> str:
    """Path and query of an address, as they go onto the wire."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
