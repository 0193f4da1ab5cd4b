"""Sending by aiohttp, which is not imported.

Two ways. `asend(session, intent)` returns the typed outcome; it reads the whole response, so that it also recovers an
answer whose body breaks. `RetryMiddleware()` is a client middleware and changes no line around it; it returns what the
session would have met without it, only later, and its deadline ends with the response's head.

    ClientSession(middlewares=[RetryMiddleware()])

aiohttp sends requests of idempotent methods a second time by itself, where a connection that it had kept open breaks.
For what is sent here that is switched off: whether there is another attempt is decided in one place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from twicesafe.client._aiohttp import (
    Library,
    Sending,
    Trail,
    failures_of,
    freeze,
    is_worth_reading,
    library_of,
    mistakes_of,
    read_ahead,
    sendable,
    take_credentials,
    trail_of,
    unfollowable,
)
from twicesafe.client._announcing import attempt_headers
from twicesafe.client._drive import adrive
from twicesafe.client._elsewhere import Onward, leave_key, netloc_at, onward, origin_at, path_at
from twicesafe.client._underway import carried
from twicesafe.client.ambient import ASYNC_REAL, AsyncAmbient
from twicesafe.client.budgets import OF_THIS_PROCESS, Budgets
from twicesafe.client.intents import Intent, body_half_read
from twicesafe.client.reports import sign_error, sign_response
from twicesafe.client.reserved import refuse_reserved
from twicesafe.client.watching import Watch
from twicesafe.core.attempts import Answered, Failed, Send
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Outcome, Report, Sent, Unknown
from twicesafe.core.record import HeaderLines
from twicesafe.core.retry_policy import RetryPolicy

__all__ = ["Request", "RetryMiddleware", "asend"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Handler = Callable[[Any], Awaitable[Any]]

_DEFAULT: Final = RetryPolicy()


class Session(Protocol[R_co]):
    """aiohttp.ClientSession."""

    @property
    def request(self) -> Callable[..., Awaitable[R_co]]:
        """What sends."""


class Request:
    """What `session.request()` would be given: `Request("PUT", "/carts/1", json=cart)`.

    Its key is the one in its `Idempotency-Key` header, if it has one; `contract` says what it may bear where its method
    and its key do not.
    """

    __slots__ = ("contract", "method", "options", "url")

    def __init__(self, method: str, url: Any, *, contract: Contract | None = None, **options: Any) -> None:
        self.method = method.upper()
        self.url = url
        self.contract = contract
        self.options = options


# --- the typed outcome -----------------------------------------------------------------------------------------------


async def asend(
    session: Session[R],
    what: Intent | Request,
    *,
    policy: RetryPolicy = _DEFAULT,
    deadline: timedelta | None = None,
    follow_redirects: bool = True,
    max_redirects: int = 10,
    budgets: Budgets = OF_THIS_PROCESS,
    ambient: AsyncAmbient = ASYNC_REAL,
    watch: Watch | None = None,
) -> Outcome[R]:
    """Send an intent or a `Request` until its outcome is known or time is up.

    `session` is an `aiohttp.ClientSession`; its middlewares, cookies, traces and time-outs count for each attempt.
    `deadline` overrides the policy's, and interrupts whatever is under way; `max_redirects` is as aiohttp counts them.
    The response of the outcome is read and released. Cancellation passes through.

    Raises what is no outcome: a request that can never be sent, an error of the session's own middlewares.
    `report_of()` finds the key on each, and the same intent can be sent again.
    """
    library = library_of(session)
    if not isinstance(what, Intent):
        refuse_reserved(what)
    policy = policy if deadline is None else policy.but(deadline=deadline)
    address = _address(session, what.url)
    calls, said, key = _calls(session, library, what, policy, address)
    underway = calls.underway = Sending(
        library, what.method, address, calls.lines, policy, budgets, ambient, said=said, key=key
    )
    underway.watch, underway.frozen = watch, calls.body
    calls.limit = None if underway.contract is Contract.NEVER else policy.body_limit

    async def attempt(step: Send) -> Answered[Any] | Failed[Any]:
        call = _Call(calls, step.number)
        response: Any = None
        try:
            async with ambient.limit(step.timeout):
                response = await call.answer(allow_redirects=follow_redirects, max_redirects=max_redirects)
                body = await response.read()
        except mistakes_of(library):
            raise
        except failures_of(library) as error:
            if calls.half_read:
                raise body_half_read() from error
            return underway.broke(error, call.sent(), response)
        return underway.came(response, body)

    try:
        outcome = await adrive(underway, attempt, ambient)
    except BaseException as error:
        sign_error(error, underway.report())
        raise
    return _signed(outcome, underway)


def _address(session: Any, url: Any) -> str:
    base = session._base_url  # noqa: SLF001 - a session has no other way to say what an address is relative to
    return str(url) if base is None else str(base.join(type(base)(str(url))))


class _Calls:
    """What the attempts of one operation have in common."""

    def __init__(self, session: Any, library: Library, method: str, url: Any, options: dict[str, Any]) -> None:
        self.session = session
        self.library = library
        self.method = method
        self.url = url
        own = options.pop("middlewares", None)
        self.middlewares = tuple(session._middlewares if own is None else own)  # noqa: SLF001 - or they would be lost
        self.headers = list(_pairs(options.pop("headers", None)))
        self.options = options
        self.body: bytes | None = None
        """As soon as it is in memory."""
        self.half_read = False
        """Its reading broke off: what is left of it is another body."""
        self.underway: Any = None
        self.limit: int | None = None
        """Bytes of a body that are kept to be sent again; None where it is never sent again."""

    @property
    def lines(self) -> HeaderLines:
        """The header lines, as far as the caller gives them."""
        given = [*_pairs(self.session.headers), *self.headers]
        return tuple((name.encode("latin-1", "replace"), line.encode("latin-1", "replace")) for name, line in given)

    def keep(self, body: bytes, request: Any) -> None:
        """The first attempt has read the body: the others send those bytes, called what they were called."""
        self.body = self.underway.frozen = body
        for name in ("data", "json"):
            self.options.pop(name, None)
        media_type = request.headers.get("Content-Type")
        if media_type is not None:
            self.headers = [(name, line) for name, line in self.headers if name.lower() != "content-type"]
            self.headers.append(("Content-Type", media_type))

    def given(self) -> dict[str, Any]:
        """The arguments of an attempt's call."""
        body = {"data": sendable(self.body)} if self.body else {}
        return {**self.options, **body, "headers": self.headers, "raise_for_status": False}


def _calls(
    session: Any, library: Library, what: Intent | Request, policy: RetryPolicy, address: str
) -> tuple[_Calls, Contract | None, str | None]:
    """What is sent, its contract as far as the caller says it, and its key where that is in the body."""
    if not isinstance(what, Intent):
        return _Calls(session, library, what.method, what.url, dict(what.options)), what.contract, None
    try:
        lines, body, said = carried(what, policy, netloc_at(address), path_at(address))
    except Exception as error:
        sign_error(error, Report(what.key, ()))
        raise
    calls = _Calls(session, library, what.method, what.url, {"headers": [*what.headers, *lines]})
    calls.body = body
    return calls, said, None if body is what.body else what.key


def _pairs(headers: Any) -> Iterable[tuple[str, str]]:
    if headers is None:
        return ()
    return [(str(name), str(line)) for name, line in (headers.items() if isinstance(headers, Mapping) else headers)]


class _Stays(Exception):  # noqa: N818 - no error, and nobody outside of this module meets it
    """A redirect is the answer."""


class _Call:
    """One attempt: a call of the session, as the outermost of its middlewares sees it."""

    def __init__(self, calls: _Calls, number: int) -> None:
        self._calls = calls
        self._number = number
        self._hops: list[Any] = []
        self._trail: Trail | None = None

    def sent(self) -> Sent:
        """How far it got. Without a trail it did not get as far as here."""
        return Sent.NO if self._trail is None else self._trail.sent()

    async def answer(self, **redirects: Any) -> Any:
        """The head of the answer. Redirects within the call are aiohttp's to follow, and ours to refuse."""
        calls = self._calls
        try:
            return await calls.session.request(
                calls.method,
                calls.url,
                middlewares=(self._send, *calls.middlewares),
                **{**calls.given(), **redirects},
            )
        except Exception as error:
            if not isinstance(error, (_Stays, *unfollowable(calls.library))):
                raise
            *before, response = self._hops
            # aiohttp has given it up by now, and its body is here.
            response._history, response._released = tuple(before), False  # noqa: SLF001 - nobody else puts them there
            return response

    async def _send(self, request: Any, handler: Handler) -> Any:
        calls = self._calls
        trail, known = trail_of(request)
        if known:
            trail.check(request)
            self._follow(request, trail)
        else:
            trail.begin(calls.underway.check_leaving)
            self._trail = trail
            # A RetryMiddleware below lets it pass.
            trail.attempting = True
        request.headers.update(attempt_headers(calls.underway, self._number))
        if calls.limit is not None and calls.body is None:
            calls.half_read = True
            body = await freeze(request, calls.library, calls.limit)
            calls.half_read = False
            calls.keep(body, request)
        try:
            response = await handler(request)
            if 300 <= response.status < 400:
                self._hops.append(response)
                await response.read()
        except Exception as error:
            trail.failed(request, error)
            raise
        return response

    def _follow(self, request: Any, trail: Trail) -> None:
        """Let a redirect pass, or raise _Stays."""
        if not self._hops:
            return
        origin = origin_at(str(request.url))
        if origin != trail.origin:
            take_credentials(request, self._calls.session)
        carrier = self._calls.underway.carrier
        then = onward(
            self._hops[-1].status,
            self._calls.method,
            trail.origin,
            request.method,
            origin,
            keyed=self._calls.underway.key_in_body or carrier in request.headers,
        )
        if then is Onward.STAY:
            raise _Stays
        if then is Onward.GO_WITHOUT_KEY:
            request.headers.popall(carrier, None)


# --- within a session ------------------------------------------------------------------------------------------------


class RetryMiddleware:
    """A client middleware: `ClientSession(middlewares=[RetryMiddleware()])`, or `middlewares=` of one request.

    Where the last attempt was answered, that response is returned, whatever its status; where it failed, aiohttp's own
    exception is raised. `report_of()` finds the key and the attempts on either. What a body does after its head is the
    caller's to see. The session's time-out in all covers all attempts and the waits between them.

    `contract` is that of all requests that go through it. Without it a request's method and key say what it may bear.
    """

    def __init__(
        self,
        policy: RetryPolicy = _DEFAULT,
        *,
        contract: Contract | None = None,
        budgets: Budgets = OF_THIS_PROCESS,
        ambient: AsyncAmbient = ASYNC_REAL,
        watch: Watch | None = None,
    ) -> None:
        self._policy = policy
        self._contract = contract
        self._budgets = budgets
        self._ambient = ambient
        self._watch = watch

    async def __call__(self, request: Any, handler: Handler) -> Any:
        """The response of the last attempt."""
        trail, known = trail_of(request)
        if trail.attempting:
            return await handler(request)
        trail.check(request)
        policy, ambient, library = self._policy, self._ambient, library_of(request)
        underway = self._underway(request, library, trail, known=known)
        kept: list[Any] = []

        async def attempt(step: Send) -> Answered[Any] | Failed[Any]:
            while kept:
                kept.pop().close()
            request.headers.update(attempt_headers(underway, step.number))
            response = body = None
            trail.begin(underway.check_leaving)
            trail.attempting = True
            try:
                async with ambient.limit(step.timeout):
                    response = await handler(request)
                    kept.append(response)
                    if is_worth_reading(response):
                        body = await read_ahead(response, library)
            except mistakes_of(library):
                raise
            except failures_of(library) as error:
                return underway.broke(error, trail.sent(), response)
            finally:
                trail.attempting = False
            return underway.came(response, body)

        try:
            if underway.contract is not Contract.NEVER:
                underway.frozen = await freeze(request, library, policy.body_limit)
            outcome = _signed(await adrive(underway, attempt, ambient), underway)
        except BaseException as error:
            while kept:
                kept.pop().close()
            sign_error(error, underway.report())
            raise
        if isinstance(outcome, Unknown) and outcome.error is not None:
            trail.failed(request, outcome.error)
            raise outcome.error
        trail.until, trail.carrier, trail.in_body = underway.until, underway.carrier, underway.key_in_body
        return outcome.response

    def _underway(self, request: Any, library: Library, trail: Trail, *, known: bool) -> Sending:
        address = str(request.url)
        if known and origin_at(address) != trail.origin:
            trail.left = True
        if trail.left:
            leave_key(request.headers, trail.carrier, request.method, address, in_body=trail.in_body)
        lines = tuple((name.encode(), line.encode()) for name, line in request.headers.items())
        underway = Sending(
            library,
            request.method,
            address,
            lines,
            self._policy,
            self._budgets,
            self._ambient,
            said=self._contract,
            until=trail.until,
        )
        underway.watch = self._watch
        return underway


def _signed(outcome: Outcome[R], underway: Sending) -> Outcome[R]:
    if outcome.response is not None:
        sign_response(outcome.response, underway.report())
    if isinstance(outcome, Unknown) and outcome.error is not None:
        sign_error(outcome.error, underway.report())
    return outcome
