"""Sending by httpx2 or httpx, sync and async: one implementation, which imports neither.

Two ways. `send(client, intent)` returns the typed outcome; it reads the whole response, so that it also recovers an
answer whose body breaks. `RetryTransport(transport)` goes under an existing client and changes no line above it; it
returns what the client would have met without it, only later, and its deadline ends with the response's head.

Both read a request's contract from its method and its key, or from `extensions={"twicesafe.contract": "safe"}`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from twicesafe.client._announcing import attempt_headers
from twicesafe.client._bodies import acollect, afreeze, collect, freeze
from twicesafe.client._drive import adrive, drive
from twicesafe.client._library import Library, failures_of, library_of, mistakes_of
from twicesafe.client._reads import read_within
from twicesafe.client._redirects import Way, leads_nowhere
from twicesafe.client._sending import ATTEMPTED, CONTRACT, Sending, signed
from twicesafe.client._transports import DEFAULT, AsyncRetryTransport, RetryTransport
from twicesafe.client._underway import carried
from twicesafe.client._wire import AsyncWire, ClippedTimeouts, Wire, in_time_for_the_pool
from twicesafe.client.ambient import ASYNC_REAL, REAL, Ambient, AsyncAmbient
from twicesafe.client.budgets import OF_THIS_PROCESS, Budgets
from twicesafe.client.intents import Intent
from twicesafe.client.reports import sign_error
from twicesafe.client.reserved import refuse_reserved
from twicesafe.client.watching import Watch
from twicesafe.core.attempts import Answered, Failed, Send
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Outcome, Report
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.errors import ConfigurationError

__all__ = ["AsyncRetryTransport", "RetryTransport", "asend", "send"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Client(Protocol[R_co]):
    """httpx2.Client or httpx.Client."""

    def send(self, request: Any, *, stream: bool = ..., auth: Any = ..., follow_redirects: Any = ...) -> R_co: ...


class AsyncClient(Protocol[R_co]):
    """httpx2.AsyncClient or httpx.AsyncClient."""

    def send(
        self, request: Any, *, stream: bool = ..., auth: Any = ..., follow_redirects: Any = ...
    ) -> Awaitable[R_co]: ...


# --- the typed outcome -----------------------------------------------------------------------------------------------


def send(
    client: Client[R],
    what: Intent | Any,
    *,
    policy: RetryPolicy = DEFAULT,
    deadline: timedelta | None = None,
    follow_redirects: bool | None = None,
    budgets: Budgets = OF_THIS_PROCESS,
    ambient: Ambient = REAL,
    watch: Watch | None = None,
) -> Outcome[R]:
    """Send an intent, or a request that `client.build_request()` made, until its outcome is known or time is up.

    `deadline` and `follow_redirects` override the policy's and the client's. The response of the outcome is read and
    closed; nothing is left running afterwards.

    Raises what is no outcome: a request that can never be sent, an error of the client's own hooks, KeyboardInterrupt.
    `report_of()` finds the key on each, and the same intent can be sent again.
    """
    library = library_of(client)
    if isinstance(client, library.AsyncClient):
        raise ConfigurationError("this client is asynchronous: use asend()")
    policy = policy if deadline is None else policy.but(deadline=deadline)
    template, key = _template(client, what, policy)
    underway: Sending[R] = Sending(template, policy, budgets, ambient, ambient.clock(), key=key)
    underway.watch = watch

    def attempt(step: Send) -> Answered[R] | Failed[R]:
        request, until = _copy(template, library, underway, step.number), ambient.clock() + step.timeout
        limits = ClippedTimeouts(request.extensions.get("timeout") or {}, until, ambient.clock)
        request.extensions["timeout"] = limits
        wire = Wire(request.extensions, underway.check_leaving)
        way = Way(client, template, underway.carrier, in_body=underway.key_in_body, follow=follow_redirects)
        response: Any = None
        before = read_within(limits)
        try:
            while request is not None:
                response = None
                response = client.send(request, stream=True, follow_redirects=False, **way.told(request))
                collect(response, library, until, ambient.clock)
                response.read()
                request = way.onward(response)
        except mistakes_of(library):
            raise
        except failures_of(library) as error:
            return underway.broke(error, wire, response)
        except library.InvalidURL as error:
            # Of a redirect: the request's own was read before anything was sent.
            return underway.broke(leads_nowhere(library, error), wire)
        finally:
            read_within(before)
        return underway.came(response, response.content if response.status_code >= 400 else None)

    try:
        if underway.contract is not Contract.NEVER:
            freeze(template, library, policy.body_limit)
        outcome = drive(underway, attempt, ambient)
    except BaseException as error:
        sign_error(error, underway.report())
        raise
    return signed(outcome, underway)


async def asend(
    client: AsyncClient[R],
    what: Intent | Any,
    *,
    policy: RetryPolicy = DEFAULT,
    deadline: timedelta | None = None,
    follow_redirects: bool | None = None,
    budgets: Budgets = OF_THIS_PROCESS,
    ambient: AsyncAmbient = ASYNC_REAL,
    watch: Watch | None = None,
) -> Outcome[R]:
    """`send()`, for asyncio and trio; the deadline interrupts whatever is under way. Cancellation passes through."""
    library = library_of(client)
    if not isinstance(client, library.AsyncClient):
        raise ConfigurationError("this client is synchronous: use send()")
    policy = policy if deadline is None else policy.but(deadline=deadline)
    template, key = _template(client, what, policy)
    underway: Sending[R] = Sending(template, policy, budgets, ambient, ambient.clock(), key=key)
    underway.watch = watch

    async def attempt(step: Send) -> Answered[R] | Failed[R]:
        request = _copy(template, library, underway, step.number)
        timeouts = request.extensions.get("timeout") or {}
        request.extensions["timeout"] = in_time_for_the_pool(timeouts, step.timeout)
        wire = AsyncWire(request.extensions, underway.check_leaving)
        way = Way(client, template, underway.carrier, in_body=underway.key_in_body, follow=follow_redirects)
        response: Any = None
        try:
            async with ambient.limit(step.timeout):
                while request is not None:
                    response = None
                    response = await client.send(request, stream=True, follow_redirects=False, **way.told(request))
                    await acollect(response, library)
                    await response.aread()
                    request = way.onward(response)
        except mistakes_of(library):
            raise
        except failures_of(library) as error:
            return underway.broke(error, wire, response)
        except library.InvalidURL as error:
            # Of a redirect: the request's own was read before anything was sent.
            return underway.broke(leads_nowhere(library, error), wire)
        return underway.came(response, response.content if response.status_code >= 400 else None)

    try:
        if underway.contract is not Contract.NEVER:
            await afreeze(template, library, policy.body_limit)
        outcome = await adrive(underway, attempt, ambient)
    except BaseException as error:
        sign_error(error, underway.report())
        raise
    return signed(outcome, underway)


def _template(client: Any, what: Intent | Any, policy: RetryPolicy) -> tuple[Any, str | None]:
    """The request that all attempts are copies of, and the key that an intent put on it."""
    if not isinstance(what, Intent):
        refuse_reserved(what)
        return what, None
    try:
        template = client.build_request(what.method, what.url, content=what.body or None, headers=what.headers)
        url = template.url
        lines, body, said = carried(what, policy, url.netloc.decode("ascii"), url.raw_path.decode("ascii"))
        if body is not what.body:
            template = client.build_request(what.method, what.url, content=body, headers=what.headers)
    except Exception as error:
        sign_error(error, Report(what.key, ()))
        raise
    for name, line in lines:
        template.headers[name] = line
    if said is not None:
        template.extensions = {**template.extensions, CONTRACT: said}
    return template, what.key if lines or body is not what.body else None


def _copy(template: Any, library: Library, underway: Sending[Any], number: int) -> Any:
    """One attempt: the template's key and bytes, with headers of its own for the client's authentication to change."""
    request = library.Request(
        template.method, template.url, headers=template.headers, stream=template.stream, extensions={}
    )
    if isinstance(template.stream, library.ByteStream):
        request.read()
    for name, line in attempt_headers(underway, number):
        request.headers[name] = line
    request.extensions = {**template.extensions, ATTEMPTED: number}
    return request
