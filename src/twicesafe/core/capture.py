"""What the handler answers, collected as it comes, and the moment at which the first byte may leave.

An answer is held back until it is whole and recorded (I11), unless it is a stream: a body without a length, one over
the limit, or server-sent events. A stream's head is recorded, then the body flows live, and a body that ends under the
limit is recorded after all (R18). Inside a transaction a stream of unknown length is held back up to the limit, because
the commit has to come before the first byte; server-sent events are committed at their head.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from twicesafe.core.record import HeaderLines


class Progress(Enum):
    """What a shell does with the chunk it just fed."""

    HOLD = auto()
    """Keep it back; more is to come."""
    WHOLE = auto()
    """That was the last: the answer is complete."""
    FLOW = auto()
    """Record the head, then let this and all that follows through as it comes."""


class Responded(NamedTuple):
    """The handler's answer. `body` None: not kept, because it was too large or of a kind that is not recorded."""

    status: int
    headers: HeaderLines
    body: bytes | None
    entered: bool | None = None
    """Whether the handler proper was reached; None where the shell cannot know."""
    repeatable: bool = False
    """The handler itself declared that nothing was done."""
    streaming: bool = False
    """Only the head is known: record it, then yield Flow."""


class Raised(NamedTuple):
    """The handler raised, or stopped in the middle of its answer (`error` None)."""

    error: BaseException | None
    entered: bool | None = None
    client_gone: bool = False
    """After Flow: it had been told that its client is gone, and has ended for that reason."""


class Capture:
    """Collects one answer. `live` False holds streams back up to the limit (transactional operations)."""

    __slots__ = (
        "_bodiless",
        "_chunks",
        "_event_stream",
        "_length",
        "_limit",
        "_live",
        "flowing",
        "headers",
        "size",
        "status",
        "whole",
    )

    def __init__(self, limit: int, *, live: bool) -> None:
        self._limit = limit
        self._live = live
        self._chunks: list[bytes] | None = []
        self._length: int | None = None
        self._event_stream = False
        self._bodiless = False
        self.status = 0
        self.headers: HeaderLines = ()
        self.size = 0
        self.flowing = False
        self.whole = False

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The status line and the header lines, one by one."""
        self.status = status
        # Whoever has the head of such an answer has it all, so that it is held back until the end is recorded.
        self._bodiless = status in (204, 304)
        self.headers = tuple(headers)
        for name, line in self.headers:
            length = len(name)
            if length == 14 and name.lower() == b"content-length":
                # int() refuses thousands of digits, and this is no place to raise.
                self._length = int(line) if line.isdigit() and len(line) < 20 else None
            elif length == 12 and name.lower() == b"content-type":
                self._event_stream = line.lstrip().lower().startswith(b"text/event-stream")

    def body(self, chunk: bytes, *, more: bool) -> Progress:
        """One chunk. After FLOW has been returned once, it stays FLOW until the last one is WHOLE."""
        if type(chunk) is not bytes:
            # A view of what may be written to again.
            chunk = bytes(chunk)
        size = self.size = self.size + len(chunk)
        if self._chunks is not None:
            if size > self._limit:
                self._chunks = None
            elif chunk:
                self._chunks.append(chunk)
        if not more:
            self.whole = self._length is None or self._length == size or self.status == 304
            return Progress.WHOLE
        if self.flowing:
            return Progress.FLOW
        endless = not self._bodiless and (self._event_stream or self._length is None or self._length > self._limit)
        if self._chunks is None or (endless and (self._live or self._event_stream)):
            self.flowing = True
            return Progress.FLOW
        return Progress.HOLD

    @property
    def arrived(self) -> bool:
        """Whether the body is there to its last byte, though its end may be still to be told."""
        return self.whole or self.size == self._length

    @property
    def kept(self) -> bytes | None:
        """The body, or None when it is not kept."""
        if self._chunks is None:
            return None
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    @property
    def recordable(self) -> bool:
        """Whether the body can still end under the limit: not over it, nor bound to be, and no server-sent events."""
        if self._chunks is None or self._event_stream:
            return False
        return self._length is None or self._length <= self._limit
