"""What the binding of aiohttp needs to know of it, without importing it."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from twicesafe.client._causes import is_distrust
from twicesafe.client._elsewhere import Origin, netloc_at, origin_at, path_at
from twicesafe.client._modules import module_of
from twicesafe.client._underway import Underway
from twicesafe.client.ambient import AsyncAmbient
from twicesafe.client.budgets import Budgets
from twicesafe.client.intents import body_too_large
from twicesafe.core.answers import JUDGED_BODY, is_json
from twicesafe.core.attempts import Answered, Failed
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import FailureKind, Sent
from twicesafe.core.record import HeaderLines
from twicesafe.core.retry_policy import RetryPolicy

_NAMES: Final = ("ClientSession", "ClientRequest", "ClientError", "BytesPayload")

Library: TypeAlias = Any
"""The module `aiohttp`."""

_LARGE: Final = 1024 * 1024
"""Bytes above which aiohttp wants a buffer that it can send piece by piece."""

_BUFFER: Final = 64 * 1024


def library_of(thing: object) -> Library:
    """The library of a session, a request or a response, by its class or what that descends from."""
    kind: Any = type(thing)
    return module_of(kind, _NAMES, "not of aiohttp")


# --- the operation ---------------------------------------------------------------------------------------------------


class Sending(Underway[Any]):
    """Underway, from an address and header lines. `frozen` is the body, as soon as it is in memory."""

    def __init__(
        self,
        library: Library,
        method: str,
        address: str,
        lines: HeaderLines,
        policy: RetryPolicy,
        budgets: Budgets,
        ambient: AsyncAmbient,
        *,
        said: Contract | None,
        key: str | None = None,
        until: float | None = None,
    ) -> None:
        self._library = library
        self._scheme = origin_at(address)[0]
        self._around = sys.exception()
        self.frozen: bytes | None = None
        super().__init__(
            method,
            netloc_at(address),
            path_at(address),
            lines,
            policy,
            budgets,
            ambient,
            said=said,
            key=key,
            until=until,
        )

    @property
    def scheme(self) -> str:
        """Of its address."""
        return self._scheme

    def body(self) -> bytes | None:
        """What each attempt sends; None where it is a stream."""
        return self.frozen

    def came(self, response: Any, body: bytes | None) -> Answered[Any]:
        """A head came, and with an error perhaps its body."""
        status = response.status
        return self.answered(response, status, response.raw_headers, body if status >= 400 else None)

    def broke(self, error: Exception, sent: Sent, response: Any) -> Failed[Any]:
        """The library raised one of `failures_of`; with `response`, while its body was read."""
        library = self._library
        status = None if response is None else response.status
        kind = _kind_of(library, error, sent, self._around)
        return self.failed(_as_the_librarys(library, error, sent), kind, sent, response, status)


# --- what one call consists of ---------------------------------------------------------------------------------------


class Trail:
    """Left among the traces of one `session.request()`, where each request finds it that the call consists of.

    These are its redirects, and what aiohttp sends a second time by itself, where a connection that it had kept broke
    under a request of an idempotent method. As a trace it hears how far each got.
    """

    def __init__(self, request: Any) -> None:
        self.origin: Origin = origin_at(str(request.url))
        self.until: float | None = None
        self.carrier = ""
        self.in_body = False
        """The key is in the body."""
        self.attempting = False
        """A layer above makes attempts of this call."""
        self.left = False
        """A redirect led away from the origin. The key does not come back."""
        self._failed: tuple[Any, BaseException] | None = None
        self._heard = False
        self._sent = False
        self._check: Callable[[HeaderLines], None] | None = None

    def begin(self, check: Callable[[HeaderLines], None]) -> None:
        """An attempt begins. `check` sees each request's header lines before their first byte leaves."""
        self._heard = self._sent = False
        self._check = check

    def sent(self) -> Sent:
        """How far the attempt got. A connector that tells nothing proves nothing."""
        if self._sent:
            return Sent.YES
        return Sent.NO if self._heard else Sent.MAYBE

    def failed(self, request: Any, error: BaseException) -> None:
        """The error is about to be raised: whatever asks again within the call gets it again."""
        self._failed = request, error

    def check(self, request: Any) -> None:
        """Raise what ended the call already, if aiohttp begins it anew by itself.

        It makes a new request for that. A layer above, which is asked by somebody to try again, has the same one.
        """
        if self._failed is not None:
            before, error = self._failed
            self._failed = None
            if before is not request:
                raise error

    # --- as a trace --------------------------------------------------------------------------------------------------

    async def send_request_headers(self, method: str, url: Any, headers: Any) -> None:  # noqa: ARG002 - as aiohttp calls
        """Before the first byte of the request leaves. A tunnel through a proxy is asked for without traces."""
        self._heard = True
        if self._check is not None:
            self._check(tuple((name.encode(), line.encode("latin-1", "replace")) for name, line in headers.items()))
        self._sent = True

    async def _hear(self, *_: Any) -> None:
        self._heard = True

    async def _ignore(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("send_"):
            raise AttributeError(name)
        return self._hear if name.startswith(("send_connection_", "send_dns_")) else self._ignore


def trail_of(request: Any) -> tuple[Trail, bool]:
    """The trail of the call that a request is part of, and whether it was laid by an earlier request."""
    traces = getattr(request, "_traces", None)
    if not isinstance(traces, list):
        return Trail(request), False
    for trace in traces:
        if isinstance(trace, Trail):
            return trace, True
    trail = Trail(request)
    traces.append(trail)
    return trail, False


def take_credentials(request: Any, session: Any) -> None:
    """Take the session's own credentials off a request: aiohttp has them on every one, wherever it goes."""
    credentials = getattr(session, "auth", None)
    if credentials is not None and request.headers.get("Authorization") == credentials.encode():
        request.headers.popall("Authorization")


# --- bodies ----------------------------------------------------------------------------------------------------------


async def freeze(request: Any, library: Library, limit: int) -> bytes:
    """Make a request's body one that can be sent again. BodyNotRepeatableError where it is over `limit` bytes.

    A stream is read to its end, a file from where it stands. One that says beforehand that it is too large is not
    touched.
    """
    body = request.body
    if not body:
        return b""
    in_memory = isinstance(body, library.BytesPayload)
    declared = request.headers.get("Content-Length", "")
    if not in_memory and declared.isdigit() and int(declared) > limit:
        raise body_too_large(limit)
    gathered = _Gathered(math.inf if in_memory else limit)
    await body.write(gathered)
    frozen = b"".join(gathered.pieces)
    if not in_memory:
        await request.update_body(sendable(frozen))
    return frozen


def sendable(body: bytes) -> Any:
    """Bytes as aiohttp wants them."""
    return body if len(body) <= _LARGE else io.BytesIO(body)


class _Gathered:
    """Written to as if it were the connection."""

    def __init__(self, limit: float) -> None:
        self.pieces: list[bytes] = []
        self._left = limit
        self._limit = limit

    async def write(self, piece: Any, **_: Any) -> None:
        self.pieces.append(bytes(piece))
        self._left -= len(self.pieces[-1])
        if self._left < 0:
            raise body_too_large(int(self._limit))


def is_worth_reading(response: Any) -> bool:
    """Whether an error's body is read before its caller asks for it: to judge it, and to keep the connection."""
    if response.status < 400:
        return False
    declared = response.headers.get("Content-Length")
    if declared is None:
        return is_json(response.raw_headers)
    return bool(declared.isdigit()) and int(declared) <= JUDGED_BODY


async def read_ahead(response: Any, library: Library) -> bytes:
    """Read a body so that its caller can still read it in every way, as a stream too."""
    body: bytes = await response.read()
    stream = library.StreamReader(
        library.base_protocol.BaseProtocol(response._loop),  # noqa: SLF001 - a response has no other way to name it
        max(_BUFFER, len(body)),
        loop=response._loop,  # noqa: SLF001 - as above
    )
    stream.feed_data(body)
    stream.feed_eof()
    response.content = stream
    return body


# --- failures --------------------------------------------------------------------------------------------------------


@cache
def failures_of(library: Library) -> tuple[type[Exception], ...]:
    """What an attempt that failed on its way raises."""
    return (library.ClientError, OSError)


@cache
def mistakes_of(library: Library) -> tuple[type[Exception], ...]:
    """Failures of `failures_of` that are the caller's own: a request that cannot be sent, now or ever."""
    return (library.InvalidURL, library.NonHttpUrlClientError, library.TooManyRedirects)


@cache
def unfollowable(library: Library) -> tuple[type[Exception], ...]:
    """What a redirect raises that leads to no address: its answer came, and says what it says."""
    return (library.InvalidUrlRedirectClientError, library.NonHttpUrlRedirectClientError)


def _kind_of(library: Library, error: BaseException, sent: Sent, around: BaseException | None) -> FailureKind:
    """Why the attempt failed. For the record, and for failures that do not pass; what was sent is another matter."""
    if isinstance(error, TimeoutError):
        return FailureKind.TIMEOUT
    if isinstance(error, library.ServerFingerprintMismatch) or is_distrust(error, around):
        return FailureKind.UNTRUSTED
    if sent is Sent.NO or isinstance(error, (library.ClientConnectorError, library.ClientHttpProxyError)):
        return FailureKind.CONNECT
    if isinstance(error, (library.ClientPayloadError, library.ClientResponseError)):
        return FailureKind.GARBLED
    return FailureKind.DROPPED


def _as_the_librarys(library: Library, error: BaseException, sent: Sent) -> BaseException:
    """A time-out of this package's own, as the exception that the library's users catch."""
    if type(error) is not TimeoutError:
        return error
    kind = library.ConnectionTimeoutError if sent is Sent.NO else library.SocketTimeoutError
    translated: BaseException = kind("the time for this attempt was over")
    translated.__cause__ = error
    return translated
