"""Whether a request went out, by the transport's own trace (R35), and for how long it may.

httpcore calls `request.extensions["trace"]` at each step of a request; the first one that can put a byte of the request
on the wire is `send_request_headers.started`. It looks up `request.extensions["timeout"]` at the start of each phase.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twicesafe.client._reads import watch
from twicesafe.core.outcome import Sent

SHORTEST = 0.001
"""Seconds. A time-out of 0 means something else to sockets."""

_SOONER = 0.1
"""Seconds."""

_SENDS = ".send_request_headers.started"
_CONNECTED = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")
"""A network stream is there."""
_YES = Sent.YES
_plain_get = dict.get


class Wire:
    """The trace of one attempt, to be put into `extensions`, and taken out again as soon as there is nothing to learn.

    The caller's own trace function is called too, and has the place to itself afterwards.
    """

    __slots__ = ("_also", "_check", "_extensions", "_proved")

    _blocks = True
    """Whether reads block, so that nothing else ends them."""

    def __init__(
        self, extensions: dict[str, Any], check: Callable[[Iterable[tuple[bytes, bytes]]], None] | None = None
    ) -> None:
        """`check` sees the header lines before their first byte leaves, and raises where they must not."""
        self._check = check
        self._also: Callable[[str, Mapping[str, Any]], Any] | None = extensions.get("trace")
        self._extensions = extensions
        self._proved = Sent.MAYBE
        extensions["trace"] = self

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if self._proved is not _YES:
            self._hear(event, info)
        if self._also is not None:
            self._also(event, info)

    def _hear(self, event: str, info: Mapping[str, Any]) -> None:
        # A proxy is asked for a tunnel in the same words; the operation itself has not begun then.
        request = info.get("request")
        if event.endswith(_SENDS) and getattr(request, "method", b"") != b"CONNECT":
            if self._check is not None:
                self._check(getattr(request, "headers", ()))
            self._proved = _YES
            # Each further event would cost a call, or a coroutine.
            if self._also is None:
                self._extensions.pop("trace", None)
            else:
                self._extensions["trace"] = self._also
        else:
            self._proved = Sent.NO
            if self._blocks and event.endswith(_CONNECTED):
                watch(info.get("return_value"))

    def sent(self, *, never_connected: bool) -> Sent:
        """How far it got. A transport that traces nothing proves nothing, unless it says that it had no connection."""
        return Sent.NO if never_connected and self._proved is not _YES else self._proved


class AsyncWire(Wire):
    """Wire, for transports that await their trace function."""

    __slots__ = ()

    _blocks = False

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:  # type: ignore[override]  # it is awaited
        if self._proved is not _YES:
            self._hear(event, info)
        if self._also is not None:
            await self._also(event, info)


def in_time_for_the_pool(timeouts: Mapping[str, float | None], seconds: float) -> Mapping[str, float | None]:
    """The time-outs of an attempt that is interrupted after `seconds`, where that is not before the pool's own is over.

    Who waits for a connection in vain is told so by the pool, which proves that nothing was sent; an interruption says
    nothing.
    """
    pool = timeouts.get("pool")
    if pool is not None and pool < seconds:
        return timeouts
    return {**timeouts, "pool": max(SHORTEST, seconds - min(seconds / 10, _SOONER))}


class ClippedTimeouts(dict[str, float | None]):
    """Connect, read, write and pool time-outs, each clipped to what is left at the moment it is looked up."""

    __slots__ = ("_clock", "_until")

    def __init__(self, configured: Mapping[str, float | None], until: float, clock: Callable[[], float]) -> None:
        super().__init__(configured)
        self._until = until
        self._clock = clock

    def left(self) -> float:
        """Seconds until the end."""
        return self._until - self._clock()

    def release(self) -> None:
        """From here on the configured time-outs count: what remains is the caller's to read."""
        self._until = math.inf

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        configured, left = _plain_get(self, name, default), self._until - self._clock()
        if configured is not None and configured < left:
            return configured
        return max(SHORTEST, left) if left < math.inf else None
