"""A WSGI application's answer on its way to the server: held back until it is recorded, by whatever way it comes.

Generators, `write()`, a start_response that comes late or twice: what the application does before its first byte counts
as it would under a server (PEP 3333).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from itertools import chain
from types import TracebackType
from typing import Any, Final, TypeAlias

from twicesafe.blocking.environ import Environ
from twicesafe.blocking.request import BlockingRequest
from twicesafe.blocking.sending import Close, Sendable, exactly_bytes
from twicesafe.core.record import HeaderLines

StartResponse: TypeAlias = Callable[..., Any]
WSGIApp: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]
EnteredOf: TypeAlias = Callable[[Environ, int], bool | None]
"""Whether the handler proper was reached, judged by the environ once the answer's status is known. None where that
cannot be told; False only where it is certain, because the key is then free for another run."""

ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType]
_REASONS: Final = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


def serve(
    request: BlockingRequest, app: WSGIApp, environ: Environ, start_response: StartResponse, entered: EnteredOf
) -> Iterable[bytes]:
    """Let the application answer, and give the server what it is to send.

    What was never entered passes through as if nobody stood here.
    """
    started = _Started(request, environ, start_response, entered)
    close: Close | None = None
    try:
        pieces = app(environ, started)
        close = getattr(pieces, "close", None)
        if started.passing:
            return pieces
        pieces = started.first_of(pieces)
    except BaseException as error:  # noqa: BLE001 - whatever ends the handler has to be settled first
        return send(request.raised(error, close), start_response)
    if started.passing:
        return _Closing(pieces, close, None)
    if not started.line:
        return send(request.raised(None, close), start_response)
    sendable = request.answered(started.status, started.headers, pieces, close)
    return send(sendable, start_response, started.line)


def send(sendable: Sendable, start_response: StartResponse, line: str = "") -> Iterable[bytes]:
    """Start the response and give its body. `line` is the status line that the application wrote, if it did."""
    status, headers, pieces, close, error = sendable
    if line[:3] != str(status):
        line = _REASONS.get(status, f"{status} Unknown")
    try:
        start_response(line, [(str(name, "latin-1"), str(value, "latin-1")) for name, value in headers])
    except BaseException:
        if close is not None:
            close()
        raise
    if close is None and error is None:
        # As it is: a server that sees a list of one knows its length.
        return pieces
    return _Closing(pieces, close, error)


class _Started:
    """The start_response that the application is given."""

    line = ""
    status = 0
    headers: HeaderLines = ()
    passing = False
    """The application's answer passes through to the server."""
    _sent = False
    """Its first byte is out, as far as the application can tell."""

    def __init__(
        self, request: BlockingRequest, environ: Environ, start_response: StartResponse, entered: EnteredOf
    ) -> None:
        self._request = request
        self._environ = environ
        self._start_response = start_response
        self._entered = entered
        self._written: list[bytes] = []

    def __call__(
        self, status: str, headers: list[tuple[str, str]], exc_info: ExcInfo | None = None
    ) -> Callable[[bytes], object]:
        if self.passing or not (self.line or self._request.begun):
            self.passing = True
            more = () if exc_info is None else (exc_info,)
            write: Callable[[bytes], object] = self._start_response(status, headers, *more)
            return write
        if exc_info is not None:
            if self._sent:
                raise exc_info[1].with_traceback(exc_info[2])
        elif self.line:
            raise AssertionError("start_response was called twice without exc_info")
        self.status = int(status[:3])
        self.headers = tuple([(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers])
        self.line = status
        if self._request.entered is None:
            # Now: once the application has returned, frameworks have tidied up.
            self._request.entered = self._entered(self._environ, self.status)
        return self._write

    def _write(self, piece: bytes) -> None:
        self._written.append(exactly_bytes(piece))
        self._sent = self._sent or bool(piece)

    def first_of(self, pieces: Iterable[bytes]) -> Iterable[bytes]:
        """Read up to the first byte, by which a response has to be started. Gives all pieces, written ones first."""
        if type(pieces) is list or type(pieces) is tuple:
            self._sent = True
            return [*self._written, *pieces] if self._written else pieces
        rest = iter(pieces)
        first = self._written
        for piece in rest:
            first.append(piece)
            if piece:
                break
        else:
            rest = iter(())
        self._sent = True
        return chain(first, rest)


class _Closing:
    """A body, what closes it, and what is raised at its end."""

    def __init__(self, pieces: Iterable[bytes], close: Close | None, error: BaseException | None) -> None:
        self._pieces = iter(pieces)
        self._close = close
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        for piece in self._pieces:
            return piece
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            close()
