"""One operation under way by requests or niquests, which are alike: what the rules hear of it. Neither is imported."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from functools import cache
from http.client import BadStatusLine, IncompleteRead, RemoteDisconnected
from typing import Any, Final, NamedTuple, TypeAlias

from twicesafe.client._causes import causes_of, is_distrust
from twicesafe.client._elsewhere import Origin, leave_key, netloc_at, origin_at, path_at
from twicesafe.client._modules import module_of
from twicesafe.client._underway import Underway
from twicesafe.client._urllib3 import Wire
from twicesafe.client.ambient import Ambient
from twicesafe.client.budgets import Budgets
from twicesafe.client.intents import body_too_large
from twicesafe.core.answers import JUDGED_BODY, is_json
from twicesafe.core.attempts import Answered, Failed
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import FailureKind, Sent
from twicesafe.core.record import HeaderLines
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.errors import ConfigurationError

_NAMES: Final = ("PreparedRequest", "Session", "adapters", "exceptions")

Library: TypeAlias = Any
"""The module `requests` or `niquests`, or another with the same classes."""

_PIECE: Final = 64 * 1024

# --- the library -----------------------------------------------------------------------------------------------------


def library_of(thing: object) -> Library:
    """The library of a session, an adapter or a request, by its class or what that descends from."""
    kind: Any = type(thing)
    return module_of(kind, _NAMES, "neither of requests nor of niquests")


# --- the operation ---------------------------------------------------------------------------------------------------


class Sending(Underway[Any]):
    """Underway, from a prepared request."""

    def __init__(
        self,
        request: Any,
        library: Library,
        policy: RetryPolicy,
        budgets: Budgets,
        ambient: Ambient,
        *,
        said: Contract | None,
        key: str | None = None,
    ) -> None:
        self._request = request
        self._library = library
        self._around = sys.exception()
        hop = _hop_of(request)
        if hop is not None and hop.origin != origin_at(request.url):
            leave_key(request.headers, hop.carrier, request.method, request.url, in_body=hop.in_body)
        url = request.url
        super().__init__(
            request.method,
            netloc_at(url),
            path_at(url),
            lines_of(request.headers),
            policy,
            budgets,
            ambient,
            said=said,
            key=key,
            until=None if hop is None else hop.until,
        )

    @property
    def scheme(self) -> str:
        """Of its address."""
        return origin_at(self._request.url)[0]

    def body(self) -> bytes | None:
        """What each attempt sends; None where it is a stream."""
        body = self._request.body
        return body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else None

    def came(self, response: Any, *, read: bool) -> Answered[Any]:
        """A head came, and with an error perhaps its body."""
        body = response.content if read and response.status_code >= 400 else None
        return self.answered(response, response.status_code, answer_lines(response), body)

    def broke(self, error: Exception, wire: Wire) -> Failed[Any]:
        """The library raised one of `failures_of`. What was the caller's own mistake is raised anew."""
        library, head = self._library, wire.head
        sent = wire.sent()
        if _is_mistake(library, error) and not (
            sent is Sent.YES and isinstance(error, library.exceptions.InvalidHeader)
        ):
            raise error
        failure = _failure_of(library, error, sent, self._around)
        return self.failed(failure.error, failure.kind, sent, head, None if head is None else head.status_code)

    def expect_redirect(self) -> None:
        """Leave a mark on the request by which a redirect of it is recognised."""
        request = self._request
        kept = [hook for hook in _response_hooks(request) if not isinstance(hook, Hop)]
        request.hooks = {
            **(request.hooks or {}),
            "response": [*kept, Hop(request, self.carrier, self.until, in_body=self.key_in_body)],
        }


# --- requests --------------------------------------------------------------------------------------------------------


def lines_of(headers: Any) -> HeaderLines:
    """Header lines as the rules read them, each on its own where the library still has them so."""
    return tuple((_bytes(name), _bytes(value)) for name, value in headers.items())


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")


def streams(request: Any) -> bool:
    """Whether the body can be sent once only, as it is."""
    return not isinstance(request.body, (bytes, str, type(None)))


def freeze(request: Any, limit: int) -> None:
    """Make a prepared request's body one that can be sent again. BodyNotRepeatableError where it is over `limit` bytes.

    A stream is read to its end, a file from where it stands. One that says beforehand that it is too large is not
    touched, and one that turns out to be is put back to where it stood, if it can be.
    """
    if not streams(request):
        return
    body, headers = request.body, request.headers
    declared = str(headers.get("Content-Length", ""))
    if declared.isdigit() and int(declared) > limit:
        raise body_too_large(limit)
    if not hasattr(body, "__iter__") and not hasattr(body, "read"):
        raise ConfigurationError(
            f"a body of type {type(body).__name__} cannot be read here: give bytes, a file, or an iterator"
        )
    start = _position(body)
    pieces, size = [], 0
    for piece in _read(body) if hasattr(body, "read") else body:
        pieces.append(_bytes(piece))
        size += len(pieces[-1])
        if size > limit:
            if start is not None:
                body.seek(start)
            raise body_too_large(limit)
    request.body = _Frozen(b"".join(pieces))
    # Otherwise a redirect would wind it back, as if it were the file.
    request._body_position = None  # noqa: SLF001 - there is no other way to say it
    if "Content-Length" in headers:
        headers["Content-Length"] = str(size)


class _Frozen(bytes):
    """What was a file. Who noted where that stood, as digest authentication does, winds it back to send it again."""

    def seek(self, *_: int) -> int:
        """It is sent from its beginning, whenever it is."""
        return 0


def _read(file: Any) -> Iterator[Any]:
    while piece := file.read(_PIECE):
        yield piece


def _position(body: Any) -> int | None:
    try:
        return int(body.tell())
    except (AttributeError, OSError):
        return None


class Hop:
    """Left among the hooks of a request that was redirected, which its redirect inherits: the same operation goes on.

    As a hook it does nothing.
    """

    def __init__(self, request: Any, carrier: str, until: float, *, in_body: bool) -> None:
        self._request = weakref.ref(request)
        self.carrier = carrier
        self.in_body = in_body
        self.origin: Origin = origin_at(request.url)
        self.until = until

    def __call__(self, response: Any, **_: Any) -> None:
        """A response came. Nothing to do."""

    def is_of(self, request: Any) -> bool:
        """Whether the request is the very one that was redirected, and is sent again."""
        return self._request() is request


def _hop_of(request: Any) -> Hop | None:
    """The mark on a request that is a redirect of another."""
    for hook in _response_hooks(request):
        if isinstance(hook, Hop):
            return None if hook.is_of(request) else hook
    return None


def _response_hooks(request: Any) -> list[Any]:
    hooks = (request.hooks or {}).get("response") or []
    return [hooks] if callable(hooks) else list(hooks)


# --- responses -------------------------------------------------------------------------------------------------------


def answer_lines(response: Any) -> HeaderLines:
    """A response's header lines."""
    raw = getattr(response.raw, "headers", None)
    return lines_of(raw if hasattr(raw, "items") else response.headers)


def is_worth_reading(response: Any) -> bool:
    """Whether an error's body is read before its caller asks for it: to judge it, and to keep the connection."""
    if response.status_code < 400:
        return False
    declared = response.headers.get("Content-Length")
    if declared is None:
        return is_json(answer_lines(response))
    return bool(declared.isdigit()) and int(declared) <= JUDGED_BODY


# --- failures --------------------------------------------------------------------------------------------------------


@cache
def failures_of(library: Library) -> tuple[type[Exception], ...]:
    """What an attempt that failed on its way raises, among others."""
    # Of urllib3's errors some come as they are.
    return (OSError, library.exceptions.BaseHTTPError)


def _is_mistake(library: Library, error: Exception) -> bool:
    """Whether one of `failures_of` is the caller's own: a request that cannot be sent, now or ever."""
    known = library.exceptions
    passing = (known.ConnectionError, known.Timeout, known.ChunkedEncodingError, known.ContentDecodingError)
    return isinstance(error, known.RequestException) and not isinstance(error, passing)


class Failure(NamedTuple):
    """A failure in the rules' words."""

    error: BaseException
    kind: FailureKind


def _failure_of(library: Library, error: Exception, sent: Sent, around: BaseException | None) -> Failure:
    """Why an attempt failed. For the record, and for failures that do not pass; what was sent is another matter.

    `around` is what its caller was handling. A time-out of this package's own becomes the exception that the library's
    users catch.
    """
    known = library.exceptions
    if type(error) is TimeoutError:
        translated = (known.ConnectTimeout if sent is Sent.NO else known.ReadTimeout)(
            "the time for this attempt was over"
        )
        translated.__cause__ = error
        return Failure(translated, FailureKind.TIMEOUT)
    if is_distrust(error, around):
        return Failure(error, FailureKind.UNTRUSTED)
    causes = causes_of(error, around)
    if any(isinstance(cause, (known.Timeout, TimeoutError)) for cause in causes):
        return Failure(error, FailureKind.TIMEOUT)
    if sent is Sent.NO or isinstance(error, known.ProxyError):
        return Failure(error, FailureKind.CONNECT)
    garbled = (known.ChunkedEncodingError, known.ContentDecodingError, known.InvalidHeader)
    if isinstance(error, garbled) or any(_is_no_http(cause) for cause in causes):
        return Failure(error, FailureKind.GARBLED)
    return Failure(error, FailureKind.DROPPED)


def _is_no_http(cause: BaseException) -> bool:
    return isinstance(cause, (BadStatusLine, IncompleteRead)) and not isinstance(cause, RemoteDisconnected)
