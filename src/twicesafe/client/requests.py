"""Sending by requests or niquests: one implementation, which imports neither.

Two ways. `send(session, intent)` returns the typed outcome. `RetryAdapter(HTTPAdapter())` is mounted on a session and
changes no line above it; it returns what the session would have met without it, only later.

    session.mount("https://", RetryAdapter(HTTPAdapter()))

urllib3 retries too, if an adapter's `max_retries` say so. For attempts made here that is switched off, on a view of the
adapter that shares its connections; the adapter itself stays as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from twicesafe.client._announcing import attempt_headers
from twicesafe.client._drive import drive
from twicesafe.client._elsewhere import Onward, destination, netloc_at, onward, origin_at, path_at
from twicesafe.client._prepared import Library, Sending, failures_of, freeze, is_worth_reading, library_of, streams
from twicesafe.client._underway import carried
from twicesafe.client._urllib3 import Wire, collect, once, send_once
from twicesafe.client.ambient import REAL, Ambient
from twicesafe.client.budgets import OF_THIS_PROCESS, Budgets
from twicesafe.client.intents import Intent
from twicesafe.client.reports import sign_error, sign_response
from twicesafe.client.reserved import refuse_reserved
from twicesafe.client.watching import Watch
from twicesafe.core.attempts import Answered, Failed, Send
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Outcome, Report, Unknown
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.errors import ConfigurationError

__all__ = ["RetryAdapter", "send"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_DEFAULT: Final = RetryPolicy()

if TYPE_CHECKING:
    # To a type checker it fits wherever either library wants its own BaseAdapter.
    _Adapter = Any
else:
    _Adapter = object


class Session(Protocol[R_co]):
    """requests.Session or niquests.Session."""

    def send(self, request: Any, **more: Any) -> R_co: ...


# --- the typed outcome -----------------------------------------------------------------------------------------------


def send(
    session: Session[R],
    what: Intent | Any,
    *,
    policy: RetryPolicy = _DEFAULT,
    deadline: timedelta | None = None,
    contract: Contract | None = None,
    timeout: Any = None,
    follow_redirects: bool = True,
    budgets: Budgets = OF_THIS_PROCESS,
    ambient: Ambient = REAL,
    watch: Watch | None = None,
) -> Outcome[R]:
    """Send an intent, a `Request` or a `PreparedRequest` until its outcome is known or time is up.

    `session` is a `requests.Session` or a `niquests.Session`. `deadline` overrides the policy's; `contract` says what a
    request may bear where its method does not, and an intent has its own; `timeout` is for each attempt, as the session
    takes it, and clipped to what is left. The response of the outcome is read and closed. A connection that is being
    made and a head that is on its way are not interrupted, only each of their reads and writes is.

    Raises what is no outcome: a request that can never be sent, an error of the session's own hooks, KeyboardInterrupt.
    `report_of()` finds the key on each, and the same intent can be sent again.
    """
    library = library_of(session)
    if isinstance(session, getattr(library, "AsyncSession", ())):
        raise ConfigurationError("this session is asynchronous, which is not supported: use a niquests.Session")
    policy = policy if deadline is None else policy.but(deadline=deadline)
    template, said, key = _template(session, library, what, policy, contract)
    underway = Sending(template, library, policy, budgets, ambient, said=said, key=key)
    underway.watch = watch
    settings = _settings(session, template.url)

    def attempt(step: Send) -> Answered[Any] | Failed[Any]:
        wire = Wire(ambient.clock() + step.timeout, ambient.clock, underway.check_leaving)
        within = _within(session, library, wire)
        way = _Way(session, library, template, underway, follow=follow_redirects)
        request = template.copy()
        request.headers.update(attempt_headers(underway, step.number))
        now = settings
        try:
            while request is not None:
                response = within.send(request, allow_redirects=False, timeout=timeout, **now)
                request = way.onward(response)
                if request is not None:
                    now = _settings(session, request.url)
        except failures_of(library) as error:
            return underway.broke(error, wire)
        return underway.came(response, read=True)

    try:
        if underway.contract is not Contract.NEVER:
            freeze(template, policy.body_limit)
        outcome = drive(underway, attempt, ambient)
    except BaseException as error:
        sign_error(error, underway.report())
        raise
    return _signed(outcome, underway)


def _template(
    session: Any, library: Library, what: Intent | Any, policy: RetryPolicy, contract: Contract | None
) -> tuple[Any, Contract | None, str | None]:
    """The request that all attempts are copies of, its contract as far as the caller says it, and its key where that is
    in the body."""
    if not isinstance(what, Intent):
        refuse_reserved(what)
        return (session.prepare_request(what) if isinstance(what, library.Request) else what), contract, None
    try:
        url = session.prepare_request(library.Request(what.method, what.url)).url
        lines, body, said = carried(what, policy, netloc_at(url), path_at(url))
        headers: dict[str, str] = {}
        for name, value in (*what.headers, *lines):
            known = next((other for other in headers if other.lower() == name.lower()), name)
            headers[known] = f"{headers[known]}, {value}" if known in headers else value
        request = library.Request(what.method, what.url, data=body or None, headers=headers)
        return session.prepare_request(request), said, None if body is what.body else what.key
    except Exception as error:
        sign_error(error, Report(what.key, ()))
        raise


def _settings(session: Any, url: str) -> dict[str, Any]:
    """Proxies and certificates, as `session.request()` finds them."""
    found: dict[str, Any] = session.merge_environment_settings(url, {}, True, None, None)
    return found


def _within(session: Any, library: Library, wire: Wire) -> Any:
    """A view of the session for one attempt, with its cookies, hooks and connections, that sends once."""
    view: Any = object.__new__(type(session))
    view.__dict__.update(session.__dict__)
    # At one moment: another thread may mount one.
    adapters = tuple(session.adapters.items())
    view.adapters = OrderedDict((prefix, _Once(adapter, library, wire)) for prefix, adapter in adapters)
    resolve = view.resolve_redirects

    def leading(*args: Any, **more: Any) -> Iterator[Any]:
        # A redirect to no address is an answer, and says what it says.
        with suppress(ValueError):
            yield from resolve(*args, **more)

    view.resolve_redirects = leading
    return view


class _Once:
    """An adapter in one attempt: it sends once, and reads the whole answer while there is time."""

    def __init__(self, adapter: Any, library: Library, wire: Wire) -> None:
        self._adapter = once(adapter.inner if isinstance(adapter, RetryAdapter) else adapter, library.adapters)
        self._library = library
        self._wire = wire

    def send(self, request: Any, *, timeout: Any = None, **rest: Any) -> Any:
        if "multiplexed" in rest:
            rest["multiplexed"] = False
        response = send_once(
            self._adapter, request, self._wire, timeout=timeout, adapters=self._library.adapters, **rest
        )
        # Hooks that ask again, for authentication say, do it within the same attempt.
        response.connection = self
        collect(response, self._wire)
        return response

    def close(self) -> None:
        """The session's own to do."""


class _Way:
    """The way of one attempt through redirects."""

    def __init__(self, session: Any, library: Library, request: Any, underway: Sending, *, follow: bool) -> None:
        self._limit = session.max_redirects
        self._library = library
        self._method = request.method
        self._origin = origin_at(request.url)
        self._header = underway.carrier
        self._in_body = underway.key_in_body
        self._streams = streams(request)
        self._follow = follow
        self._history: list[Any] = []

    def onward(self, response: Any) -> Any:
        """The next request, or None where the response is the answer, which then knows the way it came."""
        following = response.next if self._follow else None
        if following is not None:
            then = onward(
                response.status_code,
                self._method,
                self._origin,
                following.method,
                destination(following.url),
                keyed=self._in_body or self._header in following.headers,
            )
            if then is Onward.GO_WITHOUT_KEY:
                following.headers.pop(self._header, None)
            if then is Onward.STAY or (self._streams and following.body is not None):
                following = None
        if following is None:
            response.history = [*self._history, *response.history]
            return None
        if len(self._history) >= self._limit:
            raise self._library.exceptions.TooManyRedirects(f"Exceeded {self._limit} redirects.", response=response)
        self._history.append(response)
        return following


# --- under a session -------------------------------------------------------------------------------------------------


class RetryAdapter(_Adapter):  # type: ignore[misc]  # it is Any on purpose
    """An adapter around another: `session.mount("https://", RetryAdapter(HTTPAdapter()))`.

    Where the last attempt was answered, that response is returned, whatever its status; where it failed, the library's
    own exception is raised. `report_of()` finds the key and the attempts on either. Unless the session was told to
    stream, the body is read here, so that an answer that breaks off is recovered as well.

    `contract` is that of all requests that go through it: a session has an adapter for each prefix of addresses, so
    that its mounts are a table of contracts. Without it a request's method and key say what it may bear.
    """

    def __init__(
        self,
        adapter: Any,
        policy: RetryPolicy = _DEFAULT,
        *,
        contract: Contract | None = None,
        budgets: Budgets = OF_THIS_PROCESS,
        ambient: Ambient = REAL,
        watch: Watch | None = None,
    ) -> None:
        # Two in a row are one.
        self.inner: Any = adapter.inner if isinstance(adapter, RetryAdapter) else adapter
        self._library = library_of(self.inner)
        if not isinstance(self.inner, self._library.adapters.BaseAdapter):
            raise ConfigurationError("RetryAdapter goes around an adapter, such as requests.adapters.HTTPAdapter()")
        self._view = once(self.inner, self._library.adapters)
        self._policy = policy
        self._contract = contract
        self._budgets = budgets
        self._ambient = ambient
        self._watch = watch

    def send(self, request: Any, stream: bool = False, timeout: Any = None, **rest: Any) -> Any:  # noqa: FBT001, FBT002 - as sessions call it
        """The response of the last attempt."""
        ambient, library = self._ambient, self._library
        underway = Sending(request, library, self._policy, self._budgets, ambient, said=self._contract)
        underway.watch = self._watch
        if "multiplexed" in rest:
            rest["multiplexed"] = False
        kept: list[Any] = []

        def attempt(step: Send) -> Answered[Any] | Failed[Any]:
            while kept:
                kept.pop().close()
            request.headers.update(attempt_headers(underway, step.number))
            wire = Wire(ambient.clock() + step.timeout, ambient.clock, underway.check_leaving)
            try:
                response = send_once(
                    self._view, request, wire, stream=stream, timeout=timeout, adapters=library.adapters, **rest
                )
                kept.append(response)
                read = not stream or is_worth_reading(response)
                if read:
                    collect(response, wire)
                else:
                    wire.release()
            except failures_of(library) as error:
                return underway.broke(error, wire)
            return underway.came(response, read=read)

        try:
            if underway.contract is not Contract.NEVER:
                freeze(request, self._policy.body_limit)
            outcome = _signed(drive(underway, attempt, ambient), underway)
        except BaseException as error:
            while kept:
                kept.pop().close()
            sign_error(error, underway.report())
            raise
        if isinstance(outcome, Unknown) and outcome.error is not None:
            raise outcome.error
        response: Any = outcome.response
        response.connection = self
        if response.is_redirect:
            underway.expect_redirect()
        return response

    def close(self) -> None:
        """Close the inner adapter."""
        self.inner.close()


def _signed(outcome: Outcome[R], underway: Sending) -> Outcome[R]:
    if outcome.response is not None:
        sign_response(outcome.response, underway.report())
    if isinstance(outcome, Unknown) and outcome.error is not None:
        sign_error(outcome.error, underway.report())
    return outcome
