"""The gate: the one port a browser sees, and the network between it and the servers, faults included.

Every connection carries one request. It is read whole, the faults armed for it strike, it goes to the server of its
lane, and the answer's bytes come back as they are, or not at all. A lost answer is a connection that is reset after
the server has answered, which is all that a browser ever learns of one.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import Coroutine, Mapping
from typing import Final, NamedTuple, Protocol

import h11

from twicesafe.demo.faults import ArmedFaults, Fault
from twicesafe.demo.lanes import Lane
from twicesafe.demo.scene import Passing, Scene
from twicesafe.demo.shopper import shopper_in

LARGEST_BODY: Final = 64 * 1024
PATIENCE: Final = 10.0
"""Seconds that a connection may take to deliver its request. Short enough that none lies idle for long: a browser sends
a request again by itself, unseen by the page, when a connection it kept in reserve is reset under it."""
PIECE: Final = 64 * 1024


class Server(Protocol):
    """A server behind the gate."""

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1, alive or not."""

    @property
    def up(self) -> bool:
        """Whether a process serves there."""


class Browser(NamedTuple):
    """One connection of a browser's."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def reset(self) -> None:
        """Close as a network that broke does: with a reset, not with a farewell."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.writer.transport.abort()

    async def while_there(self, work: Coroutine[None, None, None]) -> None:
        """Do the work, unless the browser hangs up first: then it is cancelled, and whoever it asked learns of it."""
        gone = asyncio.create_task(self.reader.read(1))
        working = asyncio.create_task(work)
        try:
            await asyncio.wait((gone, working), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (gone, working):
                task.cancel()
            await asyncio.gather(gone, working, return_exceptions=True)


class Incoming(NamedTuple):
    """A request, read whole."""

    head: h11.Request
    body: bytes

    def header(self, name: bytes) -> str:
        """The first line of this name, or nothing."""
        return next((line.decode("latin-1") for found, line in self.head.headers if found == name), "")

    @property
    def shopper(self) -> str:
        """Who is shopping; empty for a browser that has not been here yet."""
        return shopper_in(self.header(b"cookie"))


class Gate:
    """Serves connections until it is told to stop. `stage` is the port of 127.0.0.1 where the page comes from."""

    def __init__(self, stage: int, lanes: Mapping[Lane, Server], faults: ArmedFaults, scene: Scene) -> None:
        self._stage = stage
        self._lanes = lanes
        self._faults = faults
        self._scene = scene
        self._numbers = itertools.count(1)
        self._open: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its last."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with asyncio.timeout(PATIENCE):
                incoming = await _read(reader)
            if incoming is not None:
                await self._pass(incoming, Browser(reader, writer))
        except (OSError, TimeoutError, h11.ProtocolError):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._open.discard(task)
            writer.close()

    async def stop(self) -> None:
        """Cut every connection."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _pass(self, incoming: Incoming, browser: Browser) -> None:
        path = incoming.head.target.partition(b"?")[0].decode("latin-1")
        lane = next((lane for lane in Lane if path in (lane.path, lane.document)), None)
        if lane is None:
            await browser.while_there(self._to_stage(incoming, browser))
        else:
            await browser.while_there(self._to_lane(lane, incoming, browser))

    async def _to_stage(self, incoming: Incoming, browser: Browser) -> None:
        await _forward(_outgoing(incoming, {}), self._stage, browser.writer)

    async def _to_lane(self, lane: Lane, incoming: Incoming, browser: Browser) -> None:
        server = self._lanes[lane]
        passing = Passing(next(self._numbers), incoming.shopper, incoming.header(b"x-request-id"))
        if not server.up:
            self._scene.refused(lane, passing)
            browser.reset()
            return
        faults = self._faults.strike(lane, passing.shopper, incoming.header(b"idempotency-key"))
        notes = {b"demo-request": str(passing), b"demo-fault": " ".join(sorted(faults))}
        lose = Fault.LOSE in faults
        answered = await _forward(_outgoing(incoming, notes), server.port, None if lose else browser.writer)
        if answered and lose:
            self._scene.lost(lane, passing)
        if lose or not answered:
            browser.reset()


async def _read(reader: asyncio.StreamReader) -> Incoming | None:
    """The request, or None where the connection was opened and never used."""
    parser = h11.Connection(h11.SERVER)
    head: h11.Request | None = None
    body = b""
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            parser.receive_data(await reader.read(PIECE))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > LARGEST_BODY:
                raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            return Incoming(head, body)
        else:
            return None


def _outgoing(incoming: Incoming, notes: Mapping[bytes, str]) -> bytes:
    """The request as the server gets it: one to a connection, with the gate's notes and nobody else's."""
    headers = [
        (name, line)
        for name, line in incoming.head.headers
        if name not in (b"connection", b"content-length", b"transfer-encoding") and not name.startswith(b"demo-")
    ]
    headers += [(name, line.encode()) for name, line in notes.items()]
    headers += [(b"connection", b"close"), (b"content-length", b"%d" % len(incoming.body))]
    request = h11.Request(method=incoming.head.method, target=incoming.head.target, headers=headers)
    writing = h11.Connection(h11.CLIENT)
    parts = [writing.send(event) for event in (request, h11.Data(data=incoming.body), h11.EndOfMessage())]
    return b"".join(part for part in parts if part)


async def _forward(request: bytes, port: int, writer: asyncio.StreamWriter | None) -> bool:
    """Send the request on, and copy the answer to `writer`, if any. Returns whether there was an answer."""
    answers, questions = await asyncio.open_connection("127.0.0.1", port)
    answered = False
    try:
        questions.write(request)
        await questions.drain()
        while piece := await answers.read(PIECE):
            answered = True
            if writer is not None:
                writer.write(piece)
                await writer.drain()
    except ConnectionError:
        # The server died under the request; or the browser left, and is told nothing any more.
        return answered
    finally:
        questions.close()
    return answered


_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time."""
