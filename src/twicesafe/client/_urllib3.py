"""What lies under requests and niquests: the proof that a request went out (R35), and what clips an attempt's time.

Both ask an adapter for a pool, the pool for a connection, and the connection to send. Of the adapter a second view is
made, which shares its pools and does not retry; the pool's `ConnectionCls`, which urllib3 has for this, becomes a
subclass that tells when it connects and when a request begins. urllib3 and urllib3.future are told apart by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from http.client import HTTPResponse, IncompleteRead
from typing import Any, Final

from twicesafe.client._wire import SHORTEST
from twicesafe.core.outcome import Sent
from twicesafe.core.record import HeaderLines
from twicesafe.errors import ClientError

_PIECE: Final = 64 * 1024

_WIRE: Final[ContextVar[Wire | None]] = ContextVar("twicesafe.urllib3", default=None)
"""Of the attempt that this thread is in: between an adapter and its connection there is nothing to hang it on."""


class Wire:
    """One attempt: how far it got, and until when it may last. `until` is on `clock`.

    `head` is a response whose body was not read to its end. `check` sees each header line before the first byte leaves.
    """

    __slots__ = ("_check", "_clock", "_heard", "_read_timeout", "_sent", "_sock", "_until", "begun", "head")

    def __init__(
        self, until: float, clock: Callable[[], float], check: Callable[[HeaderLines], None] | None = None
    ) -> None:
        self._check = check
        self._until = until
        self._clock = clock
        self._heard = False
        self._sent = False
        self._sock: Any = None
        self._read_timeout: float | None = None
        self.begun = False
        self.head: Any = None

    def sent(self) -> Sent:
        """How far it got. Connections that tell nothing prove nothing."""
        if self._sent:
            return Sent.YES
        return Sent.NO if self._heard else Sent.MAYBE

    # --- what the connection tells -----------------------------------------------------------------------------------

    def hear(self) -> None:
        """A connection that tells is at work, or none but those can be."""
        self._heard = True

    def begin(self, sock: Any) -> None:
        """From here on bytes of the request may leave. Once for each request that an attempt consists of.

        Whatever below would send it a second time does not.
        """
        if self.begun:
            raise ConnectionAbortedError(
                "this attempt has sent its request: whether there is another is not decided here"
            )
        self._heard = self._sent = self.begun = True
        self._sock = sock

    def check(self, name: str | bytes, values: Iterable[Any]) -> None:
        """A header is about to be added to the request."""
        if self._check is not None:
            self._check(tuple((_bytes(name), _bytes(value)) for value in values))

    # --- time --------------------------------------------------------------------------------------------------------

    def clipped(self, timeout: Any, kind: Any) -> Any:
        """A time-out as the library takes it, with what is left as its total. `kind` is urllib3's own class."""
        left = self.left()
        if isinstance(timeout, kind):
            clipped = timeout.clone()
            clipped.total = left if not isinstance(timeout.total, (int, float)) else min(left, timeout.total)
            self._read_timeout = _seconds(getattr(timeout, "_read", None))
            return clipped
        connect, read, *more = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        self._read_timeout = _seconds(read)
        total = _seconds(more[0]) if more else None
        return kind(connect=connect, read=read, total=left if total is None else min(left, total))

    def left(self) -> float:
        """Seconds; never 0, which means something else to sockets."""
        return max(SHORTEST, self._until - self._clock())

    def pace(self) -> None:
        """Before each read. TimeoutError where the time is over."""
        left = self._until - self._clock()
        if left <= 0:
            raise TimeoutError("the deadline passed while the response was read")
        self._limit(left if self._read_timeout is None else min(left, self._read_timeout))

    def release(self) -> None:
        """From here on the caller's own time-out counts: what remains is the caller's to read."""
        self._limit(self._read_timeout)

    def _limit(self, seconds: float | None) -> None:
        if self._sock is not None:
            with suppress(OSError):
                self._sock.settimeout(seconds)


def _bytes(given: Any) -> bytes:
    return given if isinstance(given, bytes) else str(given).encode("latin-1", "replace")


def _seconds(given: Any) -> float | None:
    return given if isinstance(given, (int, float)) else None


# --- adapters --------------------------------------------------------------------------------------------------------


def once(adapter: Any, adapters: Any) -> Any:
    """A view of an adapter, on the same pools, that sends once whatever its `max_retries` say, and tells.

    The adapter itself is left as it is. One that is no HTTPAdapter is its own view: it tells nothing. `adapters` is the
    library's module of that name.
    """
    if not isinstance(adapter, adapters.HTTPAdapter):
        return adapter
    kind: Any = type(adapter)
    view: Any = object.__new__(_telling(kind))
    view.__dict__.update(adapter.__dict__)
    # What requests itself takes for "none": errors come as they are, not as "too many retries".
    view.max_retries = adapters.Retry(0, read=False)
    return view


def send_once(adapter: Any, request: Any, wire: Wire, *, timeout: Any, adapters: Any, **rest: Any) -> Any:
    """Send by a view of an adapter. `wire` hears of it."""
    wire.begun = False
    token = _WIRE.set(wire)
    try:
        return adapter.send(request, timeout=wire.clipped(timeout, adapters.TimeoutSauce), **rest)
    except TypeError as error:
        # niquests takes it for an adapter that does not know all arguments, and asks again with fewer.
        if wire.sent() is Sent.YES:
            raise ClientError("the request began to leave, and then broke") from error
        raise
    finally:
        _WIRE.reset(token)


@cache
def _telling(kind: Any) -> type:
    return type(kind.__name__, (_Telling, kind), {"__module__": kind.__module__})


class _Telling:
    """Mixed into an adapter's class: the pools that it finds make connections that tell."""

    def get_connection_with_tls_context(self, *args: Any, **more: Any) -> Any:
        """As requests asks for a pool."""
        return _watched(super().get_connection_with_tls_context(*args, **more))  # type: ignore[misc]  # the adapter's

    def get_connection(self, *args: Any, **more: Any) -> Any:
        """As niquests does."""
        return _watched(super().get_connection(*args, **more))  # type: ignore[misc]  # the adapter's


def _watched(pool: Any) -> Any:
    """The pool. Where each of its connections tells, silence is proof that nothing was sent."""
    kind = pool.ConnectionCls
    if not hasattr(kind, "twicesafe_alone"):
        pool.ConnectionCls = _telling_connection(kind, alone=False)
        # Counted afterwards: another thread counts a connection before it looks up the class.
        if pool.num_connections == 0:
            pool.ConnectionCls = _telling_connection(kind, alone=True)
        if pool.block:
            waiting: Any = type(pool)
            pool.__class__ = _impatient(waiting)
    wire = _WIRE.get()
    if wire is not None and pool.ConnectionCls.twicesafe_alone:
        wire.hear()
    return pool


@cache
def _impatient(kind: Any) -> type:
    class Impatient(kind):  # type: ignore[misc]  # a class at run time
        """A pool that lets nobody wait longer for a connection than there is time."""

        def urlopen(self, *args: Any, **more: Any) -> Any:
            wire = _WIRE.get()
            if wire is not None and more.get("pool_timeout") is None:
                more["pool_timeout"] = wire.left()
            return super().urlopen(*args, **more)

    Impatient.__name__, Impatient.__qualname__, Impatient.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Impatient


@cache
def _telling_connection(kind: Any, *, alone: bool) -> type:
    class Telling(kind):  # type: ignore[misc]  # a class at run time
        """A connection that tells the attempt it serves. One that serves another attempt by then tells that one."""

        twicesafe_alone = alone

        def connect(self) -> None:
            wire = _WIRE.get()
            if wire is not None:
                wire.hear()
            super().connect()

        def putrequest(self, *args: Any, **more: Any) -> Any:
            # A tunnel through a proxy is asked for while connecting, and not by this method. Everything else is.
            wire = _WIRE.get()
            if wire is not None:
                if self.sock is None:
                    self.connect()
                wire.begin(self.sock)
            return super().putrequest(*args, **more)

        def putheader(self, header: Any, *values: Any) -> None:
            # Nothing of a request has left before its last header is known.
            wire = _WIRE.get()
            if wire is not None:
                wire.check(header, values)
            super().putheader(header, *values)

    Telling.__name__, Telling.__qualname__, Telling.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    heads = getattr(kind, "response_class", None)
    if isinstance(heads, type) and issubclass(heads, HTTPResponse):
        Telling.response_class = _whole(heads)
    return Telling


@cache
def _whole(kind: Any) -> type:
    class Whole(kind):  # type: ignore[misc]  # a class at run time
        """To http.client a head that breaks off is a head: half of a 201 would be a success."""

        fp: Any

        def begin(self) -> None:
            lines = self.fp
            self.fp = _Lines(lines)
            try:
                super().begin()
            finally:
                if self.fp is not None:
                    self.fp = lines

    return Whole


class _Lines:
    """A head's lines, each with its end, read as they arrive."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._begun = False
        self._wire = _WIRE.get()

    def readline(self, limit: int) -> bytes:
        """As http.client asks for it. Nothing at all, and a line that is too long, are what it knows by itself."""
        line, file = b"", self._file
        while len(line) < limit:
            if self._wire is not None:
                self._wire.pace()
            ahead = file.peek(1)
            line += file.read(min(ahead.find(b"\n") + 1 or len(ahead), limit - len(line)))
            if line.endswith(b"\n"):
                break
            if not ahead:
                if line or self._begun:
                    raise IncompleteRead(line)
                break
        self._begun = True
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


# --- bodies ----------------------------------------------------------------------------------------------------------


def collect(response: Any, wire: Wire) -> None:
    """Read a response's body, as its library does, until the attempt's time is over. It can still be read then."""
    wire.head = response
    raw = response.raw
    if hasattr(raw, "enforce_content_length"):
        # Before urllib3 2 half of a body is a body, unless it is told otherwise.
        raw.enforce_content_length = True
    if hasattr(raw, "read1"):
        response.raw = _Paced(raw, wire)
    try:
        response.content  # noqa: B018 - reading it is what a property does here
    except BaseException:
        response.raw = raw
        response.close()
        raise
    response.raw = raw
    wire.head = None


class _Paced:
    """A raw body, read as it arrives and not by buffers full, which a slow server would never fill."""

    def __init__(self, raw: Any, wire: Wire) -> None:
        self._raw = raw
        self._wire = wire

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Pieces, decoded."""
        raw = self._raw
        while True:
            if not raw.closed:
                self._wire.pace()
            piece = raw.read1(_PIECE, decode_content=True)
            if piece:
                yield piece
            elif raw.closed:
                return

    def read(self, *_: Any, **__: Any) -> bytes:
        """All of it."""
        return b"".join(self.stream())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)
