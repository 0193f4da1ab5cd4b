"""RetryTransport and its twin: under a client of httpx2 or httpx that exists already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twicesafe.client._announcing import ATTEMPT_HEADER, attempt_headers
from twicesafe.client._bodies import acollect, afreeze, collect, decoded, freeze, is_worth_reading
from twicesafe.client._drive import adrive, drive
from twicesafe.client._layers import UNDERWAY, leave
from twicesafe.client._left_open import LEFT_OPEN
from twicesafe.client._library import failures_of, is_in_memory, mistakes_of
from twicesafe.client._reads import read_within
from twicesafe.client._sending import ATTEMPTED, HOP, Sending, signed
from twicesafe.client._wire import AsyncWire, ClippedTimeouts, Wire, in_time_for_the_pool
from twicesafe.client.ambient import ASYNC_REAL, REAL, Ambient, AsyncAmbient
from twicesafe.client.budgets import OF_THIS_PROCESS, Budgets
from twicesafe.client.reports import EXTENSION, sign_error
from twicesafe.client.watching import Watch
from twicesafe.core.attempts import Answered, Failed, Send, done_at_once
from twicesafe.core.contract import Contract
from twicesafe.core.keys import KeyRule, plain_key
from twicesafe.core.outcome import Outcome, Unknown
from twicesafe.core.retry_policy import RetryPolicy

_is_key: Final = plain_key(KeyRule())
DEFAULT: Final = RetryPolicy()

if TYPE_CHECKING:
    # To a type checker it fits wherever either library wants its own BaseTransport.
    _Transport = Any
else:
    _Transport = object


class _Under(Sending[Any]):
    """An operation, and the last attempt's response, which is either handed over or closed."""

    response: Any = None
    error_body: bytes | None = None
    timeouts: ClippedTimeouts | None = None

    def announce(self, number: int) -> None:
        """An attempt begins: put on the request what it says of itself."""
        self.error_body = None
        for name, line in attempt_headers(self, number):
            self.request.headers[name] = line

    def heard(self, came: Any) -> Answered[Any] | Failed[Any]:
        """What came of an attempt, in the rules' words; `came` is the response or what failed."""
        if came is self.response:
            return self.came(came, self.error_body)
        failed: Failed[Any] = came
        return failed

    def release(self) -> None:
        """What remains of the last response is its reader's, in the time that the client allows for."""
        if self.timeouts is not None:
            self.timeouts.release()

    def close(self) -> None:
        """Close a response that is not the last."""
        if self.response is not None:
            self.response.stream.close()
            self.response = None

    async def aclose(self) -> None:
        """`close()`, where that is awaited."""
        if self.response is not None:
            await self.response.stream.aclose()
            self.response = None

    def handed_over(self, outcome: Outcome[Any]) -> Any:
        """The response of the last attempt, or its exception."""
        signed(outcome, self)
        self.response = None
        self.release()
        if isinstance(outcome, Unknown) and outcome.error is not None:
            raise outcome.error
        response: Any = outcome.response
        if 300 <= response.status_code < 400:
            self.expect_redirect()
        return response


def left(underway: _Under, error: BaseException) -> None:
    """An operation ends with an exception that is no outcome."""
    if UNDERWAY.get() is underway:
        leave(None, underway, None)
    sign_error(error, underway.report())


class _Wrapping(_Transport):  # type: ignore[misc]  # it is Any on purpose
    """What both transports know."""

    _transport: Any
    _policy: RetryPolicy
    _budgets: Budgets

    def _wrap(self, transport: Any, policy: RetryPolicy, budgets: Budgets, watch: Watch | None) -> None:
        self._transport = transport
        self._policy = policy
        self._budgets = budgets
        self._watch = watch
        # What goes the plain way (decision 31), as far as that is known beforehand.
        self._plain = watch is None and policy.routes is None and not budgets.breaks
        self._header, self._length = policy.header_name, len(policy.header_name)
        self._first_s = min(policy.attempt_s, policy.deadline_s)

    def _is_plain(self, request: Any, extensions: dict[str, Any]) -> bool:
        """Whether nothing is to be decided before the first attempt, nor after it where it succeeds."""
        if (
            not self._plain
            or self._budgets.spent
            or HOP in extensions
            or LEFT_OPEN.known
            or UNDERWAY.get() is not None
            or not is_in_memory(request.stream.__class__)
        ):
            return False
        if request.method == "GET":
            return True
        header, length = self._header, self._length
        keys = [line for name, line in request.headers.raw if len(name) == length and name.lower() == header]
        return not keys or (len(keys) == 1 and _is_key(keys[0]) is not None)


class RetryTransport(_Wrapping):
    """Wraps a sync transport: `Client(transport=RetryTransport(HTTPTransport()))`.

    Where the last attempt was answered, that response is returned, whatever its status; where it failed, the library's
    own exception is raised. `report_of()` finds the key and the attempts on either. What a streamed body does after its
    head is the caller's to see.
    """

    def __init__(
        self,
        transport: Any,
        policy: RetryPolicy = DEFAULT,
        *,
        budgets: Budgets = OF_THIS_PROCESS,
        ambient: Ambient = REAL,
        watch: Watch | None = None,
    ) -> None:
        self._wrap(transport, policy, budgets, watch)
        self._ambient = ambient

    def handle_request(self, request: Any) -> Any:
        """The response of the last attempt."""
        extensions = request.extensions
        if ATTEMPTED in extensions:
            return self._transport.handle_request(request)
        ambient = self._ambient
        underway = _Under(request, self._policy, self._budgets, ambient, ambient.clock())
        first: Answered[Any] | Failed[Any] | None = None
        try:
            if self._is_plain(request, extensions):
                request.headers[ATTEMPT_HEADER] = "1"
                UNDERWAY.set(underway)
                came = self._attempt(underway, extensions, 1, self._first_s)
                if came is underway.response and done_at_once(came.status_code):
                    UNDERWAY.set(None)
                    underway.over, underway.done = True, (came.status_code, came.headers, ambient.clock())
                    # It is the response that holds on to the operation.
                    underway.response, came.extensions[EXTENSION] = None, underway
                    underway.release()
                    return came
                UNDERWAY.set(None)
                first = underway.heard(came)
            else:
                underway.watch = self._watch
                if underway.contract is not Contract.NEVER:
                    freeze(request, underway.library, self._policy.body_limit)

            def attempt(step: Send) -> Answered[Any] | Failed[Any]:
                underway.close()
                underway.announce(step.number)
                return underway.heard(self._attempt(underway, extensions, step.number, step.timeout))

            outcome = drive(underway, attempt, ambient, first)
        except BaseException as error:
            underway.close()
            left(underway, error)
            raise
        finally:
            request.extensions = extensions
        return underway.handed_over(outcome)

    def _attempt(self, underway: _Under, extensions: dict[str, Any], number: int, seconds: float) -> Any:
        """The response, or what failed."""
        request, clock = underway.request, self._ambient.clock
        until = clock() + seconds
        timeouts = underway.timeouts = ClippedTimeouts(extensions.get("timeout") or {}, until, clock)
        extensions = request.extensions = {**extensions, "timeout": timeouts, ATTEMPTED: number}
        wire, response = Wire(extensions), None
        before = read_within(timeouts)
        try:
            response = self._transport.handle_request(request)
            if response.status_code >= 400 and is_worth_reading(response):
                library = underway.library
                collect(response, library, until, clock)
                underway.error_body = decoded(response, library)
        except mistakes_of(underway.library):
            raise
        except failures_of(underway.library) as error:
            return underway.broke(error, wire, response)
        finally:
            read_within(before)
        underway.response = response
        return response

    def close(self) -> None:
        """Close the inner transport."""
        self._transport.close()

    def __enter__(self) -> RetryTransport:
        self._transport.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._transport.__exit__(*exc)


class AsyncRetryTransport(_Wrapping):
    """RetryTransport, for asyncio and trio: `AsyncClient(transport=AsyncRetryTransport(AsyncHTTPTransport()))`."""

    def __init__(
        self,
        transport: Any,
        policy: RetryPolicy = DEFAULT,
        *,
        budgets: Budgets = OF_THIS_PROCESS,
        ambient: AsyncAmbient = ASYNC_REAL,
        watch: Watch | None = None,
    ) -> None:
        self._wrap(transport, policy, budgets, watch)
        self._ambient = ambient

    async def handle_async_request(self, request: Any) -> Any:
        """The response of the last attempt."""
        extensions = request.extensions
        if ATTEMPTED in extensions:
            return await self._transport.handle_async_request(request)
        ambient = self._ambient
        underway = _Under(request, self._policy, self._budgets, ambient, ambient.clock())
        first: Answered[Any] | Failed[Any] | None = None
        try:
            if self._is_plain(request, extensions):
                request.headers[ATTEMPT_HEADER] = "1"
                UNDERWAY.set(underway)
                came = await self._attempt(underway, extensions, 1, self._first_s)
                if came is underway.response and done_at_once(came.status_code):
                    UNDERWAY.set(None)
                    underway.over, underway.done = True, (came.status_code, came.headers, ambient.clock())
                    # It is the response that holds on to the operation.
                    underway.response, came.extensions[EXTENSION] = None, underway
                    return came
                UNDERWAY.set(None)
                first = underway.heard(came)
            else:
                underway.watch = self._watch
                if underway.contract is not Contract.NEVER:
                    await afreeze(request, underway.library, self._policy.body_limit)

            async def attempt(step: Send) -> Answered[Any] | Failed[Any]:
                await underway.aclose()
                underway.announce(step.number)
                return underway.heard(await self._attempt(underway, extensions, step.number, step.timeout))

            outcome = await adrive(underway, attempt, ambient, first)
        except BaseException as error:
            # In a scope of trio's that is cancelled, what is awaited next may raise anew.
            left(underway, error)
            await underway.aclose()
            raise
        finally:
            request.extensions = extensions
        return underway.handed_over(outcome)

    async def _attempt(self, underway: _Under, extensions: dict[str, Any], number: int, seconds: float) -> Any:
        """The response, or what failed."""
        request = underway.request
        timeouts = in_time_for_the_pool(extensions.get("timeout") or {}, seconds)
        extensions = request.extensions = {**extensions, "timeout": timeouts, ATTEMPTED: number}
        wire, response = AsyncWire(extensions), None
        try:
            async with self._ambient.limit(seconds):
                response = await self._transport.handle_async_request(request)
                if response.status_code >= 400 and is_worth_reading(response):
                    library = underway.library
                    await acollect(response, library)
                    underway.error_body = decoded(response, library)
        except mistakes_of(underway.library):
            raise
        except failures_of(underway.library) as error:
            return underway.broke(error, wire, response)
        underway.response = response
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncRetryTransport:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._transport.__aexit__(*exc)
