"""One operation under way, whatever sends it: what the rules need to hear, in the rules' own words."""

from __future__ import annotations

import weakref
from typing import Any, Final, Generic, NamedTuple, TypeVar

from twicesafe.client._library import Library, as_the_librarys, kind_of
from twicesafe.client._wire import Wire
from twicesafe.client.ambient import Ambient, AsyncAmbient
from twicesafe.client.budgets import Budgets
from twicesafe.core.attempts import Answered, Attempts, Call, Failed, attempts
from twicesafe.core.contract import Contract, contract_of
from twicesafe.core.keys import KeyRule, parse_key
from twicesafe.core.outcome import Attempt, Report
from twicesafe.core.retry_policy import RetryPolicy

R = TypeVar("R")

CONTRACT: Final = "twicesafe.contract"
"""A request's extension: the operation's contract, where the caller knows better than the method says."""

ATTEMPTED: Final = "twicesafe.attempted"
"""A request's extension, on each attempt: another layer retries it. Whoever meets it does not."""

_HOP: Final = "twicesafe.hop"

KEYS: Final = KeyRule()


class Hop(NamedTuple):
    """Left on a request that was sent. A redirect inherits it, and is a further part of the same operation."""

    request: weakref.ref[Any]
    origin: tuple[str, str, int | None]
    until: float


class Underway(Generic[R]):
    """`start` and `until` are on the ambient's clock. `trail` grows as attempts end."""

    def __init__(
        self,
        request: Any,
        library: Library,
        policy: RetryPolicy,
        budgets: Budgets,
        ambient: Ambient | AsyncAmbient,
    ) -> None:
        self._request = request
        self.library = library
        self.ambient = ambient
        start = ambient.clock()
        self.until = _until_of(request, policy, start)
        lines, carrier = request.headers.raw, policy.header_name
        self.key = parse_key([line for name, line in lines if name.lower() == carrier], KEYS)
        said = request.extensions.get(CONTRACT)
        if said is None or (said == Contract.KEYED and self.key is None):
            # Keyed no longer: a redirect led away from the origin.
            said = contract_of(request.method, lines, keyed=self.key is not None)
        self.contract = Contract(said)
        self.trail: list[Attempt] = []
        self.decisions: Attempts[R] = attempts(
            Call(self.contract, self.key, policy, self.until),
            budgets.of(request.url.netloc.decode("ascii"), policy.work, start),
            start,
            self.trail,
        )

    def answered(self, response: Any, body: bytes | None) -> Answered[R]:
        """A head came, and with an error perhaps its decoded body."""
        ambient = self.ambient
        return Answered(
            response,
            response.status_code,
            response.headers.raw,
            body,
            ambient.clock(),
            ambient.fraction(),
            ambient.wall() if response.status_code >= 400 else 0.0,
        )

    def failed(self, error: BaseException, wire: Wire, response: Any = None) -> Failed[R]:
        """The transport raised; with `response`, while its body was read."""
        library = self.library
        sent = wire.sent(never_connected=isinstance(error, library.PoolTimeout))
        return Failed(
            as_the_librarys(library, error, sent),
            kind_of(library, error),
            sent,
            self.ambient.clock(),
            self.ambient.fraction(),
            response,
            None if response is None else response.status_code,
        )

    def report(self) -> Report:
        """What is known by now."""
        return Report(self.key, tuple(self.trail))

    def expect_redirect(self) -> None:
        """Leave a mark on the request by which a redirect of it is recognised."""
        request = self._request
        request.extensions = {**request.extensions, _HOP: Hop(weakref.ref(request), origin_of(request.url), self.until)}


def _until_of(request: Any, policy: RetryPolicy, now: float) -> float:
    """The operation's deadline: its own, or that of the operation it is a redirect of.

    The key goes with a redirect on the same origin only: elsewhere it names nothing, and is nobody's business.
    """
    until = now + policy.deadline_s
    hop: Hop | None = request.extensions.get(_HOP)
    if hop is None or hop.request() is request:
        return until
    if hop.origin != origin_of(request.url):
        request.headers.pop(policy.header, None)
    return min(until, hop.until)


def origin_of(url: Any) -> tuple[str, str, int | None]:
    """Scheme, host and port, the scheme's own port written out."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)
