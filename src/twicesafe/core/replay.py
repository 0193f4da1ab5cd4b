"""Which header lines of an answer are remembered.

Kept line for line, count, order and bytes (R17), except:

- hop-by-hop fields and whatever Connection names: they belong to one connection (RFC 9110, 7.6.1);
- Date, rate limits, request and trace ids, authentication challenges, Age: they belong to one exchange, and the retry's
  own layers write them afresh;
- what the policy writes itself, under the names it gives them: the marker of a replay, and the retention;
- all but Location and Content-Location, where the lines are too many or too long, and the body with them;
- Set-Cookie, unless the policy says `store_cookies`: the cookie may open a session that has since been closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from twicesafe.core.record import HeaderLines

HOP_BY_HOP: Final = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection",
        b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip

PER_EXCHANGE: Final = frozenset(
    {
        b"date", b"age", b"server", b"via", b"alt-svc", b"server-timing",
        b"www-authenticate", b"authentication-info",
        b"x-request-id", b"x-correlation-id", b"request-id", b"traceparent", b"tracestate",
        b"ratelimit", b"ratelimit-policy", b"ratelimit-limit", b"ratelimit-remaining", b"ratelimit-reset",
        b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset", b"x-ratelimit-used",
        b"idempotent-replayed", b"idempotency-key-retention",
    }
)  # fmt: skip

_NEVER: Final = HOP_BY_HOP | PER_EXCHANGE
_NEVER_OR_COOKIE: Final = _NEVER | {b"set-cookie"}


POINTERS: Final = frozenset({b"location", b"content-location"})
"""Lines of an answer that say where its result is to be found."""


def pointers(headers: HeaderLines) -> HeaderLines:
    """The lines that a refused duplicate is told of the first answer."""
    return tuple([line for line in headers if line[0].lower() in POINTERS])


def forgotten(*, store_cookies: bool, own: Iterable[bytes] = ()) -> frozenset[bytes]:
    """Names, in lower case, of the lines that no replay sends again. `own` are those that a policy writes itself."""
    return (_NEVER if store_cookies else _NEVER_OR_COOKIE).union(own)


def is_longer(headers: HeaderLines, limit: int) -> bool:
    """Whether names and values have more bytes than `limit` in all."""
    return sum(len(name) + len(line) for name, line in headers) > limit


def remembered(headers: Sequence[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> HeaderLines:
    """The lines of `headers` that a replay sends again, in their order: none of `dropped`, which `forgotten` gives.

    Names are compared in lower case.
    """
    kept = tuple([line for line in headers if line[0].lower() not in dropped])
    if len(kept) == len(headers):
        return kept
    named = [line for name, line in headers if name.lower() == b"connection"]
    if named:
        also = {token.strip().lower() for line in named for token in line.split(b",")}
        kept = tuple([(name, line) for name, line in kept if name.lower() not in also])
    return kept
