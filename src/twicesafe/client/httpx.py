"""Sending by httpx2 or httpx, sync and async: one implementation, which imports neither.

Two ways. `send(client, intent)` returns the typed outcome; it reads the whole response, so that it also recovers an
answer whose body breaks. `RetryTransport(transport)` goes under an existing client and changes no line above it; it
returns what the client would have met without it, only later, and its deadline ends with the response's head.

Both read a request's contract from its method and its key, or from `extensions={"twicesafe.contract": "safe"}`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from twicesafe.client._bodies import acollect, afreeze, collect, decoded, freeze, is_worth_reading
from twicesafe.client._drive import adrive, drive
from twicesafe.client._library import Library, failures_of, library_of, mistakes_of
from twicesafe.client._redirects import Way
from twicesafe.client._underway import ATTEMPTED, CONTRACT, Underway
from twicesafe.client._wire import AsyncWire, ClippedTimeouts, Wire
from twicesafe.client.ambient import ASYNC_REAL, REAL, Ambient, AsyncAmbient
from twicesafe.client.budgets import OF_THIS_PROCESS, Budgets
from twicesafe.client.intents import Intent
from twicesafe.client.reports import sign_error, sign_response
from twicesafe.core.attempts import Answered, Failed, Send
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Outcome, Report, Unknown
from twicesafe.core.problems import ATTEMPT
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.errors import ConfigurationError

__all__ = ["AsyncRetryTransport", "RetryTransport", "asend", "send"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_DEFAULT: Final = RetryPolicy()
_ATTEMPT_HEADER: Final = ATTEMPT.decode("ascii")

if TYPE_CHECKING:
    # To a type checker it fits wherever either library wants its own BaseTransport.
    _Transport = Any
else:
    _Transport = object


class Client(Protocol[R_co]):
    """httpx2.Client or httpx.Client."""

    def send(self, request: Any, *, stream: bool = ..., follow_redirects: Any = ...) -> R_co: ...


class AsyncClient(Protocol[R_co]):
    """httpx2.AsyncClient or httpx.AsyncClient."""

    def send(self, request: Any, *, stream: bool = ..., follow_redirects: Any = ...) -> Awaitable[R_co]: ...


# --- the typed outcome -----------------------------------------------------------------------------------------------


def send(
    client: Client[R],
    what: Intent | Any,
    *,
    policy: RetryPolicy = _DEFAULT,
    deadline: timedelta | None = None,
    follow_redirects: bool | None = None,
    budgets: Budgets = OF_THIS_PROCESS,
    ambient: Ambient = REAL,
) -> Outcome[R]:
    """Send an intent, or a request that `client.build_request()` made, until its outcome is known or time is up.

    `deadline` and `follow_redirects` override the policy's and the client's. The response of the outcome is read and
    closed. A blocking read that is under way is not interrupted, so a server that stalls within a body can overrun the
    deadline by that one read; nothing is left running afterwards.

    Raises what is no outcome: a request that can never be sent, an error of the client's own hooks, KeyboardInterrupt.
    `report_of()` finds the key on each, and the same intent can be sent again.
    """
    library = library_of(client)
    if isinstance(client, library.AsyncClient):
        raise ConfigurationError("this client is asynchronous: use asend()")
    policy = policy if deadline is None else policy.but(deadline=deadline)
    template = _template(client, what, policy)
    underway: Underway[R] = Underway(template, library, policy, budgets, ambient)

    def attempt(step: Send) -> Answered[R] | Failed[R]:
        request, until = _copy(template, library, step, ambient), ambient.clock() + step.timeout
        wire = Wire(request.extensions)
        way = Way(client, template, policy.header, follow=follow_redirects)
        response: Any = None
        try:
            while request is not None:
                response = None
                response = client.send(request, stream=True, follow_redirects=False)
                collect(response, library, until, ambient.clock)
                response.read()
                request = way.onward(response)
        except mistakes_of(library):
            raise
        except failures_of(library) as error:
            return underway.failed(error, wire, response)
        return underway.answered(response, response.content if response.status_code >= 400 else None)

    try:
        if underway.contract is not Contract.NEVER:
            freeze(template, library, policy.body_limit)
        outcome = drive(underway.decisions, attempt, ambient)
    except BaseException as error:
        sign_error(error, underway.report())
        raise
    return _signed(outcome, underway)


async def asend(
    client: AsyncClient[R],
    what: Intent | Any,
    *,
    policy: RetryPolicy = _DEFAULT,
    deadline: timedelta | None = None,
    follow_redirects: bool | None = None,
    budgets: Budgets = OF_THIS_PROCESS,
    ambient: AsyncAmbient = ASYNC_REAL,
) -> Outcome[R]:
    """`send()`, for asyncio; the deadline interrupts whatever is under way. Cancellation passes through."""
    library = library_of(client)
    if not isinstance(client, library.AsyncClient):
        raise ConfigurationError("this client is synchronous: use send()")
    policy = policy if deadline is None else policy.but(deadline=deadline)
    template = _template(client, what, policy)
    underway: Underway[R] = Underway(template, library, policy, budgets, ambient)

    async def attempt(step: Send) -> Answered[R] | Failed[R]:
        request = _copy(template, library, step, ambient)
        wire = AsyncWire(request.extensions)
        way = Way(client, template, policy.header, follow=follow_redirects)
        response: Any = None
        try:
            async with ambient.limit(step.timeout):
                while request is not None:
                    response = None
                    response = await client.send(request, stream=True, follow_redirects=False)
                    await acollect(response, library)
                    await response.aread()
                    request = way.onward(response)
        except mistakes_of(library):
            raise
        except failures_of(library) as error:
            return underway.failed(error, wire, response)
        return underway.answered(response, response.content if response.status_code >= 400 else None)

    try:
        if underway.contract is not Contract.NEVER:
            await afreeze(template, library, policy.body_limit)
        outcome = await adrive(underway.decisions, attempt, ambient)
    except BaseException as error:
        sign_error(error, underway.report())
        raise
    return _signed(outcome, underway)


def _template(client: Any, what: Intent | Any, policy: RetryPolicy) -> Any:
    """The request that all attempts are copies of."""
    if not isinstance(what, Intent):
        return what
    if any(name.lower() == policy.header.lower() for name, _ in what.headers):
        raise ConfigurationError(f"the intent's key goes into {policy.header}: give it as key=, not among the headers")
    headers = list(what.headers)
    if what.contract is not Contract.SAFE:
        headers.append((policy.header, what.key))
    try:
        template = client.build_request(what.method, what.url, content=what.body or None, headers=headers)
    except Exception as error:
        sign_error(error, Report(what.key, ()))
        raise
    template.extensions = {**template.extensions, CONTRACT: what.contract}
    return template


def _copy(template: Any, library: Library, step: Send, ambient: Ambient | AsyncAmbient) -> Any:
    """One attempt: the template's key and bytes, with headers of its own for the client's authentication to change."""
    request = library.Request(
        template.method, template.url, headers=template.headers, stream=template.stream, extensions={}
    )
    if isinstance(template.stream, library.ByteStream):
        request.read()
    request.headers[_ATTEMPT_HEADER] = str(step.number)
    request.extensions = _clipped(template.extensions, step, ambient)
    return request


def _clipped(extensions: dict[str, Any], step: Send, ambient: Ambient | AsyncAmbient) -> dict[str, Any]:
    """A request's extensions for one attempt: time-outs clipped, other retry layers told."""
    timeouts = ClippedTimeouts(extensions.get("timeout") or {}, ambient.clock() + step.timeout, ambient.clock)
    return {**extensions, "timeout": timeouts, ATTEMPTED: step.number}


def _signed(outcome: Outcome[R], underway: Underway[R]) -> Outcome[R]:
    if outcome.response is not None:
        sign_response(outcome.response, underway.report())
    if isinstance(outcome, Unknown) and outcome.error is not None:
        sign_error(outcome.error, underway.report())
    return outcome


# --- under a client --------------------------------------------------------------------------------------------------


class RetryTransport(_Transport):  # type: ignore[misc]
    """Wraps a sync transport: `Client(transport=RetryTransport(HTTPTransport()))`.

    Where the last attempt was answered, that response is returned, whatever its status; where it failed, the library's
    own exception is raised. `report_of()` finds the key and the attempts on either. What a streamed body does after its
    head is the caller's to see.
    """

    def __init__(
        self,
        transport: Any,
        policy: RetryPolicy = _DEFAULT,
        *,
        budgets: Budgets = OF_THIS_PROCESS,
        ambient: Ambient = REAL,
    ) -> None:
        self._transport = transport
        self._policy = policy
        self._budgets = budgets
        self._ambient = ambient

    def handle_request(self, request: Any) -> Any:
        """The response of the last attempt."""
        if ATTEMPTED in request.extensions:
            return self._transport.handle_request(request)
        ambient, library = self._ambient, library_of(request)
        underway: Underway[Any] = Underway(request, library, self._policy, self._budgets, ambient)
        kept = _Kept()

        def attempt(step: Send) -> Answered[Any] | Failed[Any]:
            kept.close()
            request.headers[_ATTEMPT_HEADER] = str(step.number)
            request.extensions = _clipped(extensions, step, ambient)
            kept.timeouts, wire = request.extensions["timeout"], Wire(request.extensions)
            until = ambient.clock() + step.timeout
            response = body = None
            try:
                response = self._transport.handle_request(request)
                if is_worth_reading(response):
                    body = decoded(response, library, collect(response, library, until, ambient.clock))
            except mistakes_of(library):
                raise
            except failures_of(library) as error:
                return underway.failed(error, wire, response)
            kept.response = response
            return underway.answered(response, body)

        extensions = request.extensions
        try:
            if underway.contract is not Contract.NEVER:
                freeze(request, library, self._policy.body_limit)
            outcome = drive(underway.decisions, attempt, ambient)
        except BaseException as error:
            kept.close()
            sign_error(error, underway.report())
            raise
        finally:
            request.extensions = extensions
        return kept.handed_over(_signed(outcome, underway), underway)

    def close(self) -> None:
        """Close the inner transport."""
        self._transport.close()

    def __enter__(self) -> RetryTransport:
        self._transport.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._transport.__exit__(*exc)


class AsyncRetryTransport(_Transport):  # type: ignore[misc]
    """RetryTransport, for asyncio: `AsyncClient(transport=AsyncRetryTransport(AsyncHTTPTransport()))`."""

    def __init__(
        self,
        transport: Any,
        policy: RetryPolicy = _DEFAULT,
        *,
        budgets: Budgets = OF_THIS_PROCESS,
        ambient: AsyncAmbient = ASYNC_REAL,
    ) -> None:
        self._transport = transport
        self._policy = policy
        self._budgets = budgets
        self._ambient = ambient

    async def handle_async_request(self, request: Any) -> Any:
        """The response of the last attempt."""
        if ATTEMPTED in request.extensions:
            return await self._transport.handle_async_request(request)
        ambient, library = self._ambient, library_of(request)
        underway: Underway[Any] = Underway(request, library, self._policy, self._budgets, ambient)
        kept = _Kept()

        async def attempt(step: Send) -> Answered[Any] | Failed[Any]:
            await kept.aclose()
            request.headers[_ATTEMPT_HEADER] = str(step.number)
            request.extensions = _clipped(extensions, step, ambient)
            kept.timeouts, wire = request.extensions["timeout"], AsyncWire(request.extensions)
            response = body = None
            try:
                async with ambient.limit(step.timeout):
                    response = await self._transport.handle_async_request(request)
                    if is_worth_reading(response):
                        body = decoded(response, library, await acollect(response, library))
            except mistakes_of(library):
                raise
            except failures_of(library) as error:
                return underway.failed(error, wire, response)
            kept.response = response
            return underway.answered(response, body)

        extensions = request.extensions
        try:
            if underway.contract is not Contract.NEVER:
                await afreeze(request, library, self._policy.body_limit)
            outcome = await adrive(underway.decisions, attempt, ambient)
        except BaseException as error:
            await kept.aclose()
            sign_error(error, underway.report())
            raise
        finally:
            request.extensions = extensions
        return kept.handed_over(_signed(outcome, underway), underway)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncRetryTransport:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._transport.__aexit__(*exc)


class _Kept:
    """The last attempt's response, which is either handed over or closed."""

    __slots__ = ("response", "timeouts")

    def __init__(self) -> None:
        self.response: Any = None
        self.timeouts: ClippedTimeouts | None = None

    def close(self) -> None:
        if self.response is not None:
            self.response.stream.close()
            self.response = None

    async def aclose(self) -> None:
        if self.response is not None:
            await self.response.stream.aclose()
            self.response = None

    def handed_over(self, outcome: Outcome[Any], underway: Underway[Any]) -> Any:
        if self.timeouts is not None:
            self.timeouts.release()
        if isinstance(outcome, Unknown) and outcome.error is not None:
            raise outcome.error
        response: Any = outcome.response
        if 300 <= response.status_code < 400:
            underway.expect_redirect()
        return response
