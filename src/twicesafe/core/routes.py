"""What a caller knows of a server's operations, as a table: by method and path, how each may be sent again (R36)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from twicesafe.core.answers import PLAIN, Wording
from twicesafe.core.contract import Contract
from twicesafe.core.keys import KeyRule
from twicesafe.core.provider import Provider
from twicesafe.core.remembered import checked_retention, sending_window
from twicesafe.errors import ConfigurationError

_PLACE: Final = re.compile(r"\{(\w+)(:path)?\}")
_SERVER: Final = re.compile(r"(?:https?://([^/]+))?(/.*)")
_METHOD: Final = re.compile(r"[A-Z]+|\*")


class Terms(NamedTuple):
    """What holds for one request: of its route, and where that says nothing, of the policy."""

    contract: Contract | None
    header: str
    header_name: bytes
    """In lower case."""
    member: str
    """The member of a JSON body that the key goes into; "" where it goes into the header."""
    honoured: bool
    """Whether the server takes keys with this method."""
    key: KeyRule
    wording: Wording
    window: float | None
    """Seconds after the first attempt, after which nothing is sent under its key; None where nobody knows."""

    @classmethod
    def of_header(cls, header: str) -> Terms:
        """Where nothing is known but the header that the key goes into."""
        return cls(None, header, header.lower().encode("ascii"), "", True, KeyRule(), PLAIN, None)


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the table: `Route("POST", "/v1/charges/{id}/capture", profile="stripe-v1")`.

    `method` "*" is any. In `path` a `{name}` stands for one segment and a `{name:path}` for all that follows; with an
    origin in front, `https://api.stripe.com/v1/{rest:path}`, it is of that server only. The query does not count.

    `contract` None leaves it to the method and the key. `KEYED` holds for requests that carry a key. `profile` is the
    vendor's, by name or as a Provider: it says where the key goes, how it is written, for how long it is known and what
    the answers mean. `header` and `retention` say so where there is no profile, or otherwise than it does.
    """

    method: str
    path: str
    contract: Contract | None = None
    profile: str | Provider = ""
    header: str = ""
    retention: timedelta | None = None

    provider: Provider | None = field(init=False, repr=False, compare=False)
    _window: float | None = field(init=False, repr=False, compare=False)
    _netloc: str = field(init=False, repr=False, compare=False)
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        write = object.__setattr__
        write(self, "method", str(self.method).upper())
        if _METHOD.fullmatch(self.method) is None:
            raise ConfigurationError(f"a route's method must be a method or '*', not {self.method!r}")
        found = _SERVER.fullmatch(self.path)
        if found is None or "?" in self.path or "#" in self.path:
            raise ConfigurationError(f"a route's path begins with / or http, and has no query, not {self.path!r}")
        write(self, "_netloc", (found[1] or "").lower())
        write(self, "_pattern", _compiled(found[2]))
        if self.contract is not None:
            try:
                write(self, "contract", Contract(self.contract))
            except ValueError:
                raise ConfigurationError(
                    f"contract must be one of {', '.join(Contract)}, not {self.contract!r}"
                ) from None
        checked_retention("retention", self.retention)
        if self.header:
            check_header(self.header)
        provider = Provider.of(self.profile) if isinstance(self.profile, str) and self.profile else self.profile or None
        assert provider is None or isinstance(provider, Provider)
        write(self, "provider", provider)
        retention = self.retention or (provider.remembers if provider is not None else None)
        write(self, "_window", None if retention is None else sending_window(retention).total_seconds())

    def covers(self, method: str, netloc: str, path: str) -> bool:
        """Whether a request is one of these. `path` is as it goes onto the wire, without the query."""
        return (
            self.method in ("*", method) and self._netloc in ("", netloc) and self._pattern.fullmatch(path) is not None
        )

    def terms(self, method: str, header: str) -> Terms:
        """What holds for a request of this route, where otherwise its key would go into `header`."""
        provider = self.provider
        if provider is None:
            return Terms.of_header(self.header or header)._replace(contract=self.contract, window=self._window)
        member = "" if self.header else provider.member
        header = self.header or provider.header or header
        honoured = method in provider.methods
        name, wording = header.lower().encode("ascii"), provider.wording()
        return Terms(self.contract, header, name, member, honoured, provider.key, wording, self._window)


class Routes:
    """A table of routes, for a policy: `RetryPolicy(routes=Routes(...))`. The first line that fits counts."""

    __slots__ = ("_routes",)

    def __init__(self, *routes: Route) -> None:
        for route in routes:
            if not isinstance(route, Route):
                raise ConfigurationError(f"a table of routes is made of Route(...), not {route!r}")
        self._routes = routes

    def find(self, method: str, netloc: str, path: str) -> Route | None:
        """The route of a request; `path` may have its query."""
        path = path.partition("?")[0]
        netloc = netloc.rpartition("@")[2].lower()
        for route in self._routes:
            if route.covers(method, netloc, path):
                return route
        return None

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def __repr__(self) -> str:
        return f"Routes({', '.join(map(repr, self._routes))})"


def check_header(name: str) -> None:
    """ConfigurationError unless a key can be carried under this name."""
    if not name or not name.isascii() or any(c in name for c in " \t\r\n:"):
        raise ConfigurationError(f"header must be a header name, not {name!r}")


def _compiled(path: str) -> re.Pattern[str]:
    pieces, at = [], 0
    for place in _PLACE.finditer(path):
        pieces += [re.escape(path[at : place.start()]), ".*" if place[2] else "[^/]+"]
        at = place.end()
    rest = path[at:]
    if "{" in rest or "}" in rest:
        raise ConfigurationError(f"a place in a path is written {{name}} or {{name:path}}, not as in {path!r}")
    return re.compile("".join([*pieces, re.escape(rest)]))
