"""Header lines on their way through the gateway: what stops here, what is written anew, what is refused.

Order and number of all other lines stay as they came. What concerns one connection stops here (RFC 9110, 7.6.1), and so
do trailers and what announces them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from twicesafe.core.record import HeaderLines
from twicesafe.core.replay import HOP_BY_HOP
from twicesafe.errors import ConfigurationError
from twicesafe.incoming import ASGIScope

FORWARDED_FOR: Final = b"x-forwarded-for"
FORWARDED_PROTO: Final = b"x-forwarded-proto"
FORWARDED_HOST: Final = b"x-forwarded-host"
FORWARDED: Final = b"forwarded"
_FORWARDING: Final = frozenset({FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST, FORWARDED})
_NOT_FORWARDED: Final = HOP_BY_HOP | {b"expect", b"host", FORWARDED_FOR}

RELIED_ON: Final = _FORWARDING | {b"authorization", b"content-length", b"content-type", b"cookie", b"host", b"via"}
"""What no caller may have dropped by naming it in Connection."""

_VISIBLE: Final = re.compile(rb"[!-~]+")
_ABSOLUTE: Final = re.compile(rb"https?://([^/@]+)(/.*)?", re.IGNORECASE | re.DOTALL)
"""Without a user's name: in a Host line there is none."""


class Refusal(NamedTuple):
    """Why a request goes no further."""

    status: int
    detail: str


def refusal(scope: Mapping[str, Any], relied_on: Collection[bytes]) -> Refusal | None:
    """What is wrong with how this request is made; None where it can be passed on.

    Whatever two servers might read differently is refused, so that gateway and upstream see one request.
    """
    lines: HeaderLines = scope["headers"]
    if scope["http_version"] in ("0.9", "1", "1.0"):
        return Refusal(
            505,
            "This gateway takes HTTP/1.1 and later: in HTTP/1.0 a broken answer looks like a whole one. Behind nginx, "
            "set proxy_http_version 1.1.",
        )
    lengths, codings, hosts = [], [], 0
    for name, line in lines:
        if name == b"content-length":
            lengths.append(line)
        elif name == b"transfer-encoding":
            codings.append(line.strip().lower())
        elif name == b"host":
            hosts += 1
    if codings and lengths:
        return Refusal(400, "A request has Content-Length or Transfer-Encoding, not both.")
    if len(lengths) > 1 or any(not line.isdigit() for line in lengths):
        return Refusal(400, "A request has one Content-Length, which is a number.")
    if codings and codings != [b"chunked"]:
        return Refusal(501, "The only transfer coding of this gateway is chunked.")
    if hosts > 1:
        return Refusal(400, "A request has one Host.")
    if any(b"_" in name and _as_cgi_has_it(name, relied_on) for name, _ in lines):
        return Refusal(400, "A field's name must not be that of another one with underscores: services mix them up.")
    named = options(lines)
    if not named.isdisjoint(relied_on):
        return Refusal(400, "Connection must not name a field that is meant for the upstream.")
    if b"upgrade" in named and any(n == b"upgrade" and line.strip().lower() == b"websocket" for n, line in lines):
        return Refusal(501, "This gateway does not pass WebSockets on.")
    if scope["method"] == "CONNECT":
        return Refusal(501, "This gateway opens no tunnels.")
    path = raw_path(scope)
    if not path.startswith(b"/") and path != b"*":
        return Refusal(400, "A request's target begins with a slash.")
    if _VISIBLE.fullmatch(path + scope["query_string"]) is None:
        return Refusal(400, "A request's target is printable ASCII; other characters are written as %XX.")
    return None


def _as_cgi_has_it(name: bytes, relied_on: Collection[bytes]) -> bool:
    """Whether a service to which all names are variables, as CGI and WSGI have it, takes it for a field relied on."""
    other = name.replace(b"_", b"-")
    return name not in relied_on and (other in relied_on or other in HOP_BY_HOP)


def in_origin_form(scope: ASGIScope) -> ASGIScope:
    """The request whose target is a whole URL as if its path had been the target: the URL's host is its Host."""
    absolute = _ABSOLUTE.fullmatch(raw_path(scope))
    if absolute is None:
        return scope
    host, path = absolute[1], absolute[2] or b"/"
    lines = [(b"host", host), *[line for line in scope["headers"] if line[0] != b"host"]]
    return {**scope, "path": unquote(path.decode("latin-1")), "raw_path": path, "headers": lines}


def raw_path(scope: Mapping[str, Any]) -> bytes:
    """The path as it was sent. ConfigurationError under a server that does not tell: it could not be passed on."""
    path: bytes | None = scope.get("raw_path")
    if path is None:
        raise ConfigurationError("this server does not say what path was sent (raw_path): use uvicorn or granian")
    return path


def options(lines: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """What Connection names, in lower case."""
    return frozenset(
        [option.strip().lower() for name, line in lines if name.lower() == b"connection" for option in line.split(b",")]
    )


class Onward(NamedTuple):
    """How a gateway writes the lines of the requests that it passes on."""

    authority: bytes
    """The upstream's, for Host."""
    rewrite_host: bool
    """Host names the upstream instead of what the caller asked for."""
    trust: bool
    """What came as X-Forwarded-* and Forwarded is kept and added to; otherwise it is dropped."""
    own: frozenset[bytes]
    """Names that reach the upstream only as the gateway writes them: the carrier of keys, here and there."""

    def lines(self, scope: Mapping[str, Any], added: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Host first, then what came, in its order, then `added` and who passed it on."""
        came: HeaderLines = scope["headers"]
        dropped = _NOT_FORWARDED | self.own | options(came)
        if not self.trust:
            dropped |= _FORWARDING
        asked = next((line for name, line in came if name == b"host"), b"")
        host = self.authority if self.rewrite_host or not asked else asked
        lines = [(b"host", host), *[line for line in came if line[0] not in dropped], *added]
        lines += self._forwarding(scope, came, asked if host != asked else b"")
        version = b"2" if scope["http_version"] == "2" else scope["http_version"].encode("ascii")
        lines.append((b"via", version + b" twicesafe"))
        return lines

    def _forwarding(self, scope: Mapping[str, Any], came: HeaderLines, asked: bytes) -> list[tuple[bytes, bytes]]:
        client = scope.get("client")
        peer = client[0].encode("ascii", "replace") if client and client[0] else b"unknown"
        before = [line for name, line in came if name == FORWARDED_FOR] if self.trust else []
        names = {name for name, _ in came} if self.trust else set()
        lines = [(FORWARDED_FOR, b", ".join([*before, peer]))]
        if FORWARDED_PROTO not in names:
            lines.append((FORWARDED_PROTO, scope.get("scheme", "http").encode("ascii")))
        if asked and FORWARDED_HOST not in names:
            lines.append((FORWARDED_HOST, asked))
        if FORWARDED in names:
            node = b'"[%b]"' % peer if b":" in peer else peer
            lines.append((FORWARDED, b"for=" + node))
        return lines


def back(lines: Iterable[tuple[bytes, bytes]], dropped: Collection[bytes]) -> list[tuple[bytes, bytes]]:
    """The lines of an answer as they go on to the caller, names in lower case, without those `dropped`."""
    came = [(name.lower(), line) for name, line in lines]
    gone = HOP_BY_HOP | options(came) | frozenset(dropped)
    if any(name == b"transfer-encoding" for name, _ in came):
        # It is the coding that framed the body.
        gone |= {b"content-length"}
    return [line for line in came if line[0] not in gone]
