"""One operation under way by httpx or httpx2: what the rules hear of its request, its answers and its exceptions."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Final, NamedTuple, TypeVar

from twicesafe.client._asked import WhenAsked
from twicesafe.client._elsewhere import leave_key
from twicesafe.client._library import Library, as_the_librarys, kind_of, library_of
from twicesafe.client._underway import Underway
from twicesafe.client._wire import Wire
from twicesafe.client.ambient import Ambient, AsyncAmbient
from twicesafe.client.budgets import Budgets
from twicesafe.client.reports import sign_error, sign_response
from twicesafe.core.attempts import Answered, Failed
from twicesafe.core.outcome import Attempt, Outcome, Report, Unknown
from twicesafe.core.record import HeaderLines
from twicesafe.core.retry_policy import RetryPolicy

R = TypeVar("R")

CONTRACT: Final = "twicesafe.contract"
"""A request's extension: the operation's contract, where the caller knows better than the method says."""

ATTEMPTED: Final = "twicesafe.attempted"
"""A request's extension, on each attempt: another layer retries it. Whoever meets it does not."""

HOP: Final = "twicesafe.hop"
"""A request's extension: what it is a redirect of."""


class Hop(NamedTuple):
    """Left on a request that was sent. A redirect inherits it, and is a further part of the same operation."""

    request: weakref.ref[Any]
    origin: tuple[str, str, int | None]
    carrier: str
    in_body: bool
    until: float


class Sending(Underway[R]):
    """Underway, from a request of the library's."""

    done: tuple[int, Any, float] | None = None
    """Status, headers and time of an answer that ended a plain operation. What is recorded is made when asked for."""
    _around: BaseException | None = None
    """What the caller was handling."""

    def __init__(
        self,
        request: Any,
        policy: RetryPolicy,
        budgets: Budgets,
        ambient: Ambient | AsyncAmbient,
        start: float,
        *,
        key: str | None = None,
    ) -> None:
        self.request, self.policy, self.budgets, self.ambient, self.start = request, policy, budgets, ambient, start
        extensions = request.extensions
        self.said = extensions.get(CONTRACT)
        if key is not None:
            self._key = key
        if HOP in extensions:
            self._until = _until_of(request)
        around = sys.exception()
        if around is not None:
            self._around = around

    @WhenAsked
    def library(self) -> Library:
        """Where the request comes from."""
        return library_of(self.request)

    @WhenAsked
    def trail(self) -> list[Attempt]:
        """The attempts that have ended."""
        return []

    @WhenAsked
    def method(self) -> str:
        """Of its request."""
        return str(self.request.method)

    @WhenAsked
    def netloc(self) -> str:
        """Of its address."""
        return bytes(self.request.url.netloc).decode("ascii")

    @WhenAsked
    def path(self) -> str:
        """Of its address, with the query."""
        return bytes(self.request.url.raw_path).decode("ascii")

    @WhenAsked
    def lines(self) -> HeaderLines:
        """Its request's, key and all."""
        lines: HeaderLines = self.request.headers.raw
        return lines

    @property
    def scheme(self) -> str:
        """Of its address."""
        return str(self.request.url.scheme)

    def body(self) -> bytes | None:
        """What each attempt sends; None where it is a stream."""
        stream = self.request.stream
        return b"".join(stream) if isinstance(stream, self.library.ByteStream) else None

    def came(self, response: Any, body: bytes | None) -> Answered[R]:
        """A head came, and with an error perhaps its decoded body."""
        return self.answered(response, response.status_code, response.headers.raw, body)

    def report(self) -> Report:
        """What is known by now."""
        if self.done is not None:
            (status, headers, now), self.done = self.done, None
            nobody: Any = None
            self.record(Answered(nobody, status, headers.raw, None, now, 0.0, 0.0))
        return super().report()

    def broke(self, error: BaseException, wire: Wire, response: Any = None) -> Failed[R]:
        """The transport raised; with `response`, while its body was read."""
        library = self.library
        sent = wire.sent(never_connected=isinstance(error, library.PoolTimeout))
        status = None if response is None else response.status_code
        kind = kind_of(library, error, self._around)
        return self.failed(as_the_librarys(library, error, sent), kind, sent, response, status)

    def expect_redirect(self) -> None:
        """Leave a mark on the request by which a redirect of it is recognised."""
        request = self.request
        hop = Hop(weakref.ref(request), origin_of(request.url), self.carrier, self.key_in_body, self.until)
        request.extensions = {**request.extensions, HOP: hop}


def signed(outcome: Outcome[R], underway: Sending[Any]) -> Outcome[R]:
    """The outcome, with the report on whatever it holds."""
    if outcome.response is not None:
        sign_response(outcome.response, underway.report())
    if isinstance(outcome, Unknown) and outcome.error is not None:
        sign_error(outcome.error, underway.report())
    return outcome


def _until_of(request: Any) -> float | None:
    """The deadline of the operation that the request is a redirect of.

    The key goes with a redirect on the same origin only. RedirectedElsewhereError: see leave_key.
    """
    hop: Hop | None = request.extensions.get(HOP)
    if hop is None or hop.request() is request:
        return None
    if hop.origin != origin_of(request.url):
        leave_key(request.headers, hop.carrier, request.method, str(request.url), in_body=hop.in_body)
    return hop.until


def origin_of(url: Any) -> tuple[str, str, int | None]:
    """Scheme, host and port, the scheme's own port written out."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)
