"""What a shell is to send, and a body that flows live while it is kept for the record."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from twicesafe.blocking.dealings import Dealings
from twicesafe.core.capture import Capture, Raised, Responded
from twicesafe.core.record import HeaderLines
from twicesafe.core.steps import Propagate

Close = Callable[[], object]

LINGER: Final = 5.0
"""Seconds that a stream whose client is gone is drained for the sake of its record, in a thread that serves others."""


class ReaderGoneError(ConnectionError):
    """Raised by an iterator of pieces that waits no longer for its next one, because nobody is there to get it."""


class Sendable(NamedTuple):
    """An answer, recorded where it is to be. Whoever sends it calls `close`, if there is one, once and in any case."""

    status: int
    headers: HeaderLines
    pieces: Iterable[bytes]
    """The body. A list, unless it flows live or is none of twicesafe's business."""
    close: Close | None = None
    error: BaseException | None = None
    """To be raised once this has been sent: it is the application's, and goes where its errors go."""


class Flowing:
    """The pieces of an answer whose head is recorded, as they come: an iterator to be closed.

    At its end, or when it is closed before that because the client is gone, what became of it is recorded.
    """

    def __init__(
        self,
        request: Dealings,
        entered: bool | None,  # noqa: FBT001 - as it stands in Responded
        capture: Capture,
        held: Iterable[bytes],
        rest: Iterator[bytes],
        close: Close | None,
    ) -> None:
        self._request: Dealings | None = request
        self._entered = entered
        self._capture = capture
        self._held = deque(held)
        self._rest = rest
        self._close = close

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._held:
            return self._held.popleft()
        return exactly_bytes(next(self._rest)) if self._request is None else self._pull()

    def close(self) -> None:
        """What a server calls when it wants no more: see the record through, then close the application's own."""
        try:
            self._see_through()
        finally:
            close, self._close = self._close, None
            if close is not None:
                close()

    def __del__(self) -> None:
        # Layers around that lose an answer without closing it must not leave its claim under renewal for ever.
        if self._request is not None:
            self.close()

    def _pull(self) -> bytes:
        try:
            piece = exactly_bytes(next(self._rest))
        except StopIteration:
            self._capture.body(b"", more=False)
            self._end(None)
            raise
        except BaseException as error:
            self._end(Raised(error, self._entered, client_gone=isinstance(error, ReaderGoneError)))
            raise
        self._capture.body(piece, more=True)
        if self._capture.arrived:
            # Before its last byte leaves, for a client that counts bytes may ask again at once.
            self._end(None)
        return piece

    def _see_through(self) -> None:
        request = self._request
        if request is None:
            return
        clock = request._shared.clock  # noqa: SLF001 - it is a part of it
        until = clock() + LINGER
        try:
            while self._capture.recordable and clock() < until:
                self._pull()
        except (StopIteration, ReaderGoneError):
            return
        self._end(Raised(None, self._entered, client_gone=True))

    def _end(self, how: Raised | None) -> None:
        """Its end is reached, or it is known `how` it came short of it. Raises what is to be seen at its end."""
        request, self._request = self._request, None
        assert request is not None
        capture = self._capture
        if how is None:
            how = Raised(None, self._entered)
            if capture.arrived:
                request.advance(Responded(capture.status, capture.headers, capture.kept, self._entered))
                return
        request.advance(how)
        if type(request.result) is Propagate:
            raise request.result.error


def exactly_bytes(piece: object) -> bytes:
    """The piece of a body, which may be a view of what is written to again. TypeError where it is none."""
    return piece if type(piece) is bytes else memoryview(piece).tobytes()  # type: ignore[arg-type]
