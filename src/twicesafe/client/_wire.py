"""Whether a request went out, by the transport's own trace (R35), and for how long it may.

httpcore calls `request.extensions["trace"]` at each step of a request; the first one that can put a byte of the request
on the wire is `send_request_headers.started`. It looks up `request.extensions["timeout"]` at the start of each phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twicesafe.core.outcome import Sent

SHORTEST = 0.001
"""Seconds. A time-out of 0 means something else to sockets."""


class Wire:
    """The trace of one attempt, to be put into `extensions`, and taken out again as soon as there is nothing to learn.

    The caller's own trace function is called too, and has the place to itself afterwards.
    """

    __slots__ = ("_also", "_extensions", "_heard", "_sent")

    def __init__(self, extensions: dict[str, Any]) -> None:
        self._also: Callable[[str, Mapping[str, Any]], Any] | None = extensions.get("trace")
        self._extensions = extensions
        self._heard = False
        self._sent = False
        extensions["trace"] = self

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        self._hear(event, info)
        if self._also is not None:
            self._also(event, info)

    def _hear(self, event: str, info: Mapping[str, Any]) -> None:
        self._heard = True
        if event.endswith(".send_request_headers.started"):
            # A proxy is asked for a tunnel in the same words; the operation itself has not begun then.
            request = info.get("request")
            if getattr(request, "method", b"") != b"CONNECT":
                self._sent = True
                # Each further event would cost a call, or a coroutine.
                if self._also is None:
                    self._extensions.pop("trace", None)
                else:
                    self._extensions["trace"] = self._also

    def sent(self, *, never_connected: bool) -> Sent:
        """How far it got. A transport that traces nothing proves nothing, unless it says that it had no connection."""
        if self._sent:
            return Sent.YES
        return Sent.NO if self._heard or never_connected else Sent.MAYBE


class AsyncWire(Wire):
    """Wire, for transports that await their trace function."""

    __slots__ = ()

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:  # type: ignore[override]
        self._hear(event, info)
        if self._also is not None:
            await self._also(event, info)


class ClippedTimeouts(dict[str, float | None]):
    """Connect, read, write and pool time-outs, each clipped to what is left at the moment it is looked up."""

    __slots__ = ("_clock", "_until")

    def __init__(self, configured: Mapping[str, float | None], until: float, clock: Callable[[], float]) -> None:
        super().__init__(configured)
        self._until: float | None = until
        self._clock = clock

    def release(self) -> None:
        """From here on the configured time-outs count: what remains is the caller's to read."""
        self._until = None

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        configured, until = dict.get(self, name, default), self._until
        if until is None:
            return configured
        left = until - self._clock()
        if configured is not None and configured < left:
            return configured
        return max(SHORTEST, left)
