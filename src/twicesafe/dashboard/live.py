"""What pages and their streams of events have in common: one look at a time, however many are watching."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from twicesafe.dashboard.desk import Desk
from twicesafe.dashboard.looking import Look, Sight
from twicesafe.dashboard.tally import Tally
from twicesafe.errors import StoreError

FRESH: Final = 1.0
"""Seconds for which a round through the records is not followed by another."""
REST: Final = 9
"""Nor for this many times as long as it took: a tenth of a database's time is enough."""
STREAM: Final = 20.0
"""Seconds that a stream of events lasts; the browser then opens another, so that no shutdown waits for longer."""
EVERY: Final = 10.0
"""Seconds after which a page is drawn anew though nothing has changed but its ages."""
STREAMS: Final = 50
"""At once."""

CHANGED: Final = b"event: changed\ndata: \n\n"


class Live:
    """Looks at a store for as long as somebody looks at it, in threads that may block."""

    def __init__(self, store: Any, desk: Desk, tally: Tally | None) -> None:
        self._look = Look(store)
        self._desk = desk
        self._tally = tally
        self._looked_at = float("-inf")
        self._rest = 0.0
        self.begin()

    def begin(self) -> None:
        """Another event loop serves it from now on."""
        self._looking = asyncio.Lock()
        self._streams = 0
        self._closed = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether there are as many streams as there may be."""
        return self._streams >= STREAMS

    async def sight(self) -> Sight:
        """What was seen, no more than a moment ago. StoreError where it cannot be looked at."""
        async with self._looking:
            began = monotonic()
            if self._look.sight is None or began - self._looked_at >= self._rest:
                await asyncio.to_thread(self._look.round)
                self._looked_at = monotonic()
                self._rest = max(FRESH, REST * (self._looked_at - began))
            assert self._look.sight is not None
            return self._look.sight

    async def changed(self, digest: bytes) -> None:
        """Somebody did something about this record: it is looked at anew."""
        await asyncio.to_thread(self._look.without, digest)
        self._looked_at = float("-inf")

    def close(self) -> None:
        """End all streams, in the loop that they are of."""
        self._closed.set()

    async def stream(self) -> AsyncIterator[bytes]:
        """Server-sent events: that something has changed. What, the page itself says."""
        self._streams += 1
        try:
            yield b"retry: 500\n\n"
            ends = monotonic() + STREAM
            before: object = None
            told = monotonic()
            while monotonic() < ends and not self._closed.is_set():
                seen = await self._signature()
                if seen != before or monotonic() - told >= EVERY:
                    # What came about between the page and its stream is told, too.
                    yield CHANGED
                    before, told = seen, monotonic()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), FRESH)
        finally:
            self._streams -= 1

    async def _signature(self) -> object:
        """Differs where something has changed."""
        try:
            sight = await self.sight()
            waiting = await asyncio.to_thread(self._desk.waiting)
        except StoreError:
            return None, "out of reach"
        counts = None if waiting is None else (waiting.pending, waiting.parked)
        return sight.signature(), counts, 0 if self._tally is None else self._tally.total
