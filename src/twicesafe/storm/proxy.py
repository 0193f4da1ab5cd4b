"""A TCP proxy on 127.0.0.1 between the clients and the servers that breaks what it carries, as the plan says.

One connection carries one exchange. The proxy reads whose request it is from its Idempotency-Key, or another header, so
the clients know nothing of the faults they are going to meet; faults that a server carries out itself it passes on in a
header.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from twicesafe.storm.plan import FAULT_HEADER, KEY_HEADER, KILL_POINTS, SERVER_FAULTS, Fault, Planned

T = TypeVar("T")

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CONNECTION: Final = re.compile(rb"\r\nconnection:[^\r\n]*", re.IGNORECASE)
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")

CUT: Final = 20
"""Bytes missing at the end of an answer that is cut: less than any body the servers send."""

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 seconds: closing sends RST instead of FIN."""


class Line:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def reset(self) -> None:
        """RST."""
        carrier = self.writer.get_extra_info("socket")
        if carrier is not None:
            with contextlib.suppress(OSError):
                carrier.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    async def until_end(self) -> bytes:
        """All that the other side sends until it ends the connection, in whatever way."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def until_gone(self) -> None:
        """Return when the other side has hung up; whatever it still sends is dropped."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


class FaultProxy:
    """`faults` counts what was done to whom it carried, `attempts` the requests that arrived.

    `keyed` is the header that says whose request it is, and `heard` is told every answer that a server has given.
    """

    def __init__(self, keyed: str = KEY_HEADER, heard: Callable[[bytes], None] = lambda _answer: None) -> None:
        self._heard = heard
        line = rb'\r\n%b:[ \t]*"?([^"\r\n]+?)"?[ \t]*\r\n' % keyed.encode("ascii")
        self._key = re.compile(line, re.IGNORECASE)
        self.faults: Counter[str] = Counter()
        self.attempts = 0
        self.port = 0
        self._pending: dict[bytes, deque[Planned]] = {}
        self._exchanges: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._pick: Callable[[], Awaitable[int]]

    async def start(self, pick: Callable[[], Awaitable[int]]) -> None:
        """Listen on a free port, and carry everything to the server whose port `pick` gives."""
        self._pick = pick
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    def expect(self, key: str, faults: Iterable[Planned]) -> None:
        """Let the requests under `key` meet `faults`, in this order."""
        self._pending[key.encode("ascii")] = deque(faults)

    def struck(self, key: str) -> None:
        """The server that was armed for `key` has killed itself."""
        queue = self._pending.get(key.encode("ascii"))
        if queue and queue[0].fault in KILL_POINTS:
            queue.popleft()

    def calm(self) -> None:
        """From now on carry everything faithfully."""
        self._pending.clear()

    async def close(self) -> None:
        """Stop listening and drop what is under way. Safe to call twice."""
        if self._server is not None:
            self._server.close()
        for exchange in self._exchanges:
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)

    # --- one exchange ------------------------------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(Line(reader, writer)))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def _serve(self, client: Line) -> None:
        server: Line | None = None
        try:
            head = await client.reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await client.reader.readexactly(int(length[1]) if length else 0)
            self.attempts += 1
            key = self._key.search(head)
            queue = self._pending.get(key[1]) if key else None
            planned = None
            if queue:
                # An armed kill stays in the queue until it is reported: the server may die of something else first.
                planned = queue[0] if queue[0].fault in KILL_POINTS else queue.popleft()
            done = False
            try:
                if planned is not None and planned.fault is Fault.RESET_BEFORE:
                    done = True
                else:
                    server = await self._connect(client)
                    done = server is not None and await self._exchange(client, server, head, body, planned)
            finally:
                if planned is not None and planned.fault not in KILL_POINTS:
                    if done:
                        self.faults[planned.fault] += 1
                    elif queue is not None:
                        queue.appendleft(planned)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client sees a reset, as it would from any proxy
        finally:
            client.reset()
            if server is not None:
                server.reset()

    async def _connect(self, client: Line) -> Line | None:
        """A connection to a ready server; None when the client has given up waiting for one."""
        port = await _unless_gone(client, self._pick())
        return None if port is None else Line(*await asyncio.open_connection("127.0.0.1", port))

    async def _exchange(self, client: Line, server: Line, head: bytes, body: bytes, planned: Planned | None) -> bool:
        """Carry one request and its answer; whether the planned fault happened."""
        fault = None if planned is None else planned.fault
        extra = b"\r\nconnection: close"
        if fault in SERVER_FAULTS:
            extra += f"\r\n{FAULT_HEADER}: {fault}".encode()
        head = _CONNECTION.sub(b"", head[:-4]) + extra + b"\r\n\r\n"
        if fault is Fault.RESET_MIDWAY:
            await server.send(head + body[: len(body) // 2])
            return True
        await server.send(head + body)
        if fault is Fault.RESET_AFTER:
            assert planned is not None
            await asyncio.sleep(planned.delay)
            return True
        answer = await _unless_gone(client, server.until_end())
        if answer is None:
            return fault is Fault.SLOW_HANDLER
        if not answer:
            return False  # the server died
        self._heard(answer)
        status = _STATUS.match(answer)
        if status is not None and status[1].startswith(b"2"):
            if fault is Fault.ANSWER_DROPPED:
                return True
            if fault is Fault.ANSWER_CUT:
                await _hand_over(client, answer[:-CUT])
                return True
            if fault is Fault.ANSWER_DELAYED:
                await client.until_gone()
                return True
        await _hand_over(client, answer)
        return fault is Fault.HANDLER_FAILS and status is not None and status[1].startswith(b"5")


async def _hand_over(client: Line, answer: bytes) -> None:
    """Send `answer` and end the connection in good order, so that all of it arrives."""
    await client.send(answer)
    with contextlib.suppress(OSError):
        client.writer.write_eof()
        await client.until_gone()


async def _unless_gone(client: Line, work: Awaitable[T]) -> T | None:
    """What `work` gives, or None when the client hangs up first."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(client.until_gone())
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        gone.cancel()
        # Only one may read at a time; and what went wrong with the work is of no interest to a client that has gone.
        await asyncio.gather(working, gone, return_exceptions=True)
