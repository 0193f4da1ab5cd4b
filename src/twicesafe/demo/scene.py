"""What a shopper's page is shown: the ledger, and what the servers are doing, as it happens.

A `state` is the whole picture and may be sent again and again; a `mark` is one moment on the time line.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from twicesafe.demo.lanes import Lane
from twicesafe.demo.ledger import Ledger

HEARTBEAT = 15.0
"""Seconds after which a silent stream says that it is alive."""

_Stream: TypeAlias = "asyncio.Queue[tuple[str, Any] | None]"


class Passing(NamedTuple):
    """A request that passed the gate: its number, whose it is, and the name that the page gave it."""

    number: int
    shopper: str
    request_id: str

    def __str__(self) -> str:
        """As the gate notes it on the request, and the server repeats it in its reports."""
        # A header line ends with no blank.
        return f"{self.number} {self.shopper} {self.request_id}".rstrip()

    @classmethod
    def read(cls, note: str) -> Passing:
        """What `str` wrote."""
        number, shopper, request_id, *_ = [*note.split(" ", 2), "", ""]
        return cls(int(number), shopper, request_id)


class Server:
    """One lane's server process as the page sees it. `pid` None: it is down."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.working: dict[int, Passing] = {}


class Scene:
    """Gathers what happens and shows every shopper their own part of it."""

    def __init__(self, ledgers: Mapping[Lane, Ledger]) -> None:
        self._ledgers = ledgers
        self._servers = {lane: Server() for lane in Lane}
        self._streams: dict[_Stream, str] = {}
        self._closed = False

    # --- what happens -------------------------------------------------------------------------------------------------

    def up(self, lane: Lane, pid: int) -> None:
        """A server process is ready."""
        self._servers[lane].pid = pid
        self._mark(None, lane, "up", pid=pid)
        self._show(None)

    def down(self, lane: Lane) -> None:
        """A server process is gone, and with it whatever it was working on."""
        server = self._servers[lane]
        pid, server.pid = server.pid, None
        for passing in server.working.values():
            self._mark(passing.shopper, lane, "killed", request=passing.request_id)
        server.working.clear()
        self._mark(None, lane, "down", pid=pid)
        self._show(None)

    def began(self, lane: Lane, passing: Passing) -> None:
        """The server has begun to work on a request."""
        self._servers[lane].working[passing.number] = passing
        self._mark(passing.shopper, lane, "began", request=passing.request_id)
        self._show(passing.shopper)

    def answering(self, lane: Lane, passing: Passing) -> None:
        """The answer is about to leave the server: what it charged is committed."""
        self._mark(passing.shopper, lane, "answering", request=passing.request_id)
        self._show(passing.shopper)

    def ended(self, lane: Lane, passing: Passing) -> None:
        """The server is done with a request."""
        self._servers[lane].working.pop(passing.number, None)
        self._mark(passing.shopper, lane, "ended", request=passing.request_id)
        self._show(passing.shopper)

    def lost(self, lane: Lane, passing: Passing) -> None:
        """The answer was lost between the server and the page."""
        self._mark(passing.shopper, lane, "lost", request=passing.request_id)

    def refused(self, lane: Lane, passing: Passing) -> None:
        """No server was there to take the request."""
        self._mark(passing.shopper, lane, "refused", request=passing.request_id)

    # --- what is shown ------------------------------------------------------------------------------------------------

    def state(self, shopper: str) -> dict[str, Any]:
        """The whole picture for one shopper."""
        return {
            lane: {
                "server": self._servers[lane].pid,
                "working": sum(passing.shopper == shopper for passing in self._servers[lane].working.values()),
                "charges": [charge._asdict() for charge in self._ledgers[lane].charges(shopper)],
            }
            for lane in Lane
        }

    async def stream(self, shopper: str) -> AsyncIterator[bytes]:
        """Server-sent events for one page, from the present state on."""
        with self._subscribed(shopper) as stream:
            yield _event("state", self.state(shopper))
            while not self._closed:
                try:
                    async with asyncio.timeout(HEARTBEAT):
                        news = await stream.get()
                except TimeoutError:
                    yield b": alive\n\n"
                    continue
                if news is None:
                    return
                yield _event(*news)

    def close(self) -> None:
        """End every stream."""
        self._closed = True
        for stream in self._streams:
            stream.put_nowait(None)

    @contextmanager
    def _subscribed(self, shopper: str) -> Iterator[_Stream]:
        stream: _Stream = asyncio.Queue()
        self._streams[stream] = shopper
        try:
            yield stream
        finally:
            del self._streams[stream]

    def _mark(self, shopper: str | None, lane: Lane, kind: str, **facts: object) -> None:
        for stream, whose in self._streams.items():
            if shopper in (None, whose):
                stream.put_nowait(("mark", {"lane": lane, "kind": kind, **facts}))

    def _show(self, shopper: str | None) -> None:
        for whose in {whose for whose in self._streams.values() if shopper in (None, whose)}:
            state = self.state(whose)
            for stream, other in self._streams.items():
                if other == whose:
                    stream.put_nowait(("state", state))


def _event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
