"""Calls to other systems by httpx2 or httpx: a client that is bound to the call it is used in, sync and async.

    stripe = Provider.of("stripe-v1")
    client = httpx2.Client(base_url="https://api.stripe.com", transport=CallTransport(httpx2.HTTPTransport(), stripe))

    def charge(key: str, cents: int) -> str:
        return client.post("/v1/charges", data={"amount": cents}).raise_for_status().json()["id"]

    receipt = current().call("charge", charge, cents, to=stripe)

The transport puts the call's key where the provider takes it, freezes the body, and tells the call what the answer
proves. It returns what the client would have met without it, and refuses what could not be sent a second time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from twicesafe.bound import calling, outgoing_of_now
from twicesafe.client._bodies import acollect, afreeze, collect, decoded, freeze, is_worth_reading
from twicesafe.client._library import Library, failures_of, kind_of, library_of
from twicesafe.client._sending import CONTRACT, origin_of
from twicesafe.client._wire import AsyncWire, Wire
from twicesafe.client.reports import report_of
from twicesafe.core.carriers import with_member
from twicesafe.core.outcome import Attempt, Sent
from twicesafe.core.outgoing import NO_CALL, Asking, Origin, Outgoing, is_exempt
from twicesafe.core.provider import Fate, Provider
from twicesafe.core.retry_policy import DEFAULT_BODY_LIMIT
from twicesafe.declared import Answered, Unclear
from twicesafe.errors import CallRefusedError, ConfigurationError, InvalidKeyError

__all__ = ["AsyncCallTransport", "CallTransport", "Provider", "alook_up_at", "calling", "look_up_at"]

_REDIRECTED: Final = "twicesafe.redirected"
"""A request's extension: where it was redirected from. A redirect inherits the extensions of what it follows."""

_REPEATABLE_ANYWAY: Final = ("PUT", "DELETE")

if TYPE_CHECKING:
    # To a type checker it fits wherever either library wants its own BaseTransport.
    _Transport = Any
else:
    _Transport = object


class _Call:
    """One request of a call: what is put into it, and what comes of it."""

    def __init__(self, request: Any, library: Library, provider: Provider, outgoing: Outgoing) -> None:
        self._request = request
        self._library = library
        self._provider = provider
        self._outgoing = outgoing
        self._key = outgoing.key_for(provider)
        if request.method not in provider.methods and request.method not in _REPEATABLE_ANYWAY:
            raise outgoing.refused(f"{provider.name} takes no keys with {request.method}")

    def freeze(self, limit: int) -> None:
        """Read the body into memory. Nothing was sent where that fails."""
        with self._unless_sent():
            freeze(self._request, self._library, limit)

    async def afreeze(self, limit: int) -> None:
        """`freeze()`, for streams that are awaited."""
        with self._unless_sent():
            await afreeze(self._request, self._library, limit)

    @contextmanager
    def _unless_sent(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._outgoing.not_sent()
            raise

    def sign(self) -> None:
        """Put the key where the provider takes it, and ask the call whether this may be sent. The body is in memory."""
        request, provider = self._request, self._provider
        redirected: Origin | None = request.extensions.get(_REDIRECTED)
        body = b"".join(request.stream)
        if not provider.member:
            self._sign_header(redirected)
        elif request.method in provider.methods:
            body = self._signed_body(body)
        self._outgoing.admit(
            Asking(
                request.method,
                str(request.url),
                origin_of(request.url),
                [(name.lower(), value) for name, value in request.headers.multi_items()],
                body,
                redirected,
            )
        )

    def _sign_header(self, redirected: Origin | None) -> None:
        headers, name = self._request.headers, self._provider.header
        carried = headers.get_list(name)
        if any(value != self._key for value in carried):
            raise self._outgoing.refused(f"it carries a key of its own in {name}: leave that to the call")
        if redirected is None or redirected == origin_of(self._request.url):
            headers[name] = self._key

    def _signed_body(self, body: bytes) -> bytes:
        request = self._request
        if "content-encoding" in request.headers:
            raise self._outgoing.refused("its body is encoded, and the key goes into it")
        try:
            signed = with_member(body, self._provider.member, self._key)
        except InvalidKeyError as error:
            raise self._outgoing.refused(str(error)) from None
        request.stream = self._library.ByteStream(signed)
        request.headers["content-length"] = str(len(signed))
        return signed

    def answered(self, response: Any, body: bytes | None) -> None:
        """A head came, and with an error perhaps its decoded body."""
        heard = self._provider.hear(response.status_code, response.headers.raw, body)
        report = report_of(response)
        sent_before = report is not None and any(map(self._leaves_open, report.attempts[:-1]))
        self._outgoing.heard(heard, str(response.status_code), sent_before=sent_before)
        if 300 <= response.status_code < 400:
            origin = origin_of(self._request.url)
            self._request.extensions = {**self._request.extensions, _REDIRECTED: origin}

    def _leaves_open(self, attempt: Attempt) -> bool:
        """Whether an attempt of a retry layer below may have been carried out."""
        if attempt.sent is Sent.NO:
            return False
        return attempt.status is None or self._provider.hear(attempt.status, (), None).fate is Fate.UNKNOWN

    def check_leaving(self, _headers: object) -> None:
        """CallRefusedError where it is too late: making a connection takes time, and so does standing still."""
        self._outgoing.check_in_time()

    def failed(self, error: BaseException, wire: Wire) -> None:
        """The transport raised, or was cancelled."""
        library = self._library
        sent = wire.sent(never_connected=isinstance(error, library.PoolTimeout | CallRefusedError))
        reason = kind_of(library, error) if isinstance(error, failures_of(library)) else type(error).__name__
        self._outgoing.failed(reason, unsent=sent is Sent.NO)


def _call_of(request: Any, provider: Provider) -> _Call | None:
    """The call that a request belongs to; None for a request that goes out as it is."""
    said = request.extensions.get(CONTRACT)
    try:
        exempt = is_exempt(request.method, said)
    except ValueError:
        raise ConfigurationError(f"there is no contract {said!r} that a request could have") from None
    outgoing = outgoing_of_now()
    if exempt:
        if outgoing is not None and request.headers.get(provider.header) == provider.fitted(outgoing.derived):
            # A redirect that looks at what was done: the key stays behind.
            del request.headers[provider.header]
        return None
    if outgoing is None:
        raise CallRefusedError(f"{request.method} to {provider.name} {NO_CALL}")
    return _Call(request, library_of(request), provider, outgoing)


class CallTransport(_Transport):  # type: ignore[misc]  # it is Any on purpose
    """Wraps a sync transport: `Client(transport=CallTransport(HTTPTransport(), Provider.of("stripe-v1")))`.

    For everything but safe methods: in a call the request carries the call's key, and a second one that asks for
    something else is refused (CallRefusedError); outside of a call all are, unless they name a contract of their own,
    as in `extensions={"twicesafe.contract": "never"}`. `body_limit` is how many bytes are held in memory.
    """

    def __init__(self, transport: Any, provider: Provider, *, body_limit: int = DEFAULT_BODY_LIMIT) -> None:
        self._transport = transport
        self._provider = provider
        self._body_limit = body_limit

    def handle_request(self, request: Any) -> Any:
        """The response, as it came."""
        call = _call_of(request, self._provider)
        if call is None:
            return self._transport.handle_request(request)
        library = library_of(request)
        call.freeze(self._body_limit)
        call.sign()
        extensions = request.extensions
        request.extensions = dict(extensions)
        wire = Wire(request.extensions, call.check_leaving)
        try:
            response = self._transport.handle_request(request)
            body = None
            if is_worth_reading(response):
                collect(response, library, float("inf"), lambda: 0.0)
                body = decoded(response, library)
        except BaseException as error:
            call.failed(error, wire)
            raise
        finally:
            request.extensions = extensions
        call.answered(response, body)
        return response

    def close(self) -> None:
        """Close the inner transport."""
        self._transport.close()

    def __enter__(self) -> CallTransport:
        self._transport.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._transport.__exit__(*exc)


class AsyncCallTransport(_Transport):  # type: ignore[misc]  # it is Any on purpose
    """CallTransport, for asyncio: `AsyncClient(transport=AsyncCallTransport(AsyncHTTPTransport(), provider))`."""

    def __init__(self, transport: Any, provider: Provider, *, body_limit: int = DEFAULT_BODY_LIMIT) -> None:
        self._transport = transport
        self._provider = provider
        self._body_limit = body_limit

    async def handle_async_request(self, request: Any) -> Any:
        """The response, as it came."""
        call = _call_of(request, self._provider)
        if call is None:
            return await self._transport.handle_async_request(request)
        library = library_of(request)
        await call.afreeze(self._body_limit)
        call.sign()
        extensions = request.extensions
        request.extensions = dict(extensions)
        wire = AsyncWire(request.extensions, call.check_leaving)
        try:
            response = await self._transport.handle_async_request(request)
            body = None
            if is_worth_reading(response):
                await acollect(response, library)
                body = decoded(response, library)
        except BaseException as error:
            call.failed(error, wire)
            raise
        finally:
            request.extensions = extensions
        call.answered(response, body)
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncCallTransport:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._transport.__aexit__(*exc)


# --- asking what became of a call ------------------------------------------------------------------------------------


def look_up_at(client: Any, url: str, found: Callable[[Any], Answered]) -> Callable[..., Answered]:
    """A `look_up` for a provider that can be asked by key: GET of `url`, in which `{key}` is the call's.

    `found` is given the response to read, whatever its status: Done, NotDone or Unclear. Be slow to say NotDone: it has
    to mean that the call was not carried out and will not be, which "not found" a moment after it was sent does not.
    Where the provider cannot be reached, or is at fault, it is Unclear.
    """

    def look_up(key: str, *_arguments: object) -> Answered:
        library = library_of(client)
        try:
            response = client.get(_with_key(url, key))
        except failures_of(library):
            return Unclear()
        return Unclear() if _is_no_answer(response) else found(response)

    return look_up


def alook_up_at(client: Any, url: str, found: Callable[[Any], Answered]) -> Callable[..., Awaitable[Answered]]:
    """`look_up_at()`, for an AsyncClient."""

    async def look_up(key: str, *_arguments: object) -> Answered:
        library = library_of(client)
        try:
            response = await client.get(_with_key(url, key))
        except failures_of(library):
            return Unclear()
        return Unclear() if _is_no_answer(response) else found(response)

    return look_up


def _with_key(url: str, key: str) -> str:
    if "{key}" not in url:
        raise ConfigurationError("the address of a look-up names the key as {key}")
    return url.replace("{key}", quote(key, safe=""))


def _is_no_answer(response: Any) -> bool:
    """Of the caller's credentials, or of the provider's state, and not of the call."""
    return response.status_code >= 500 or response.status_code in (401, 403, 407, 408, 425, 429)
