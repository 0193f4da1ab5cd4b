"""A TCP proxy on 127.0.0.1 that lets everything through until it sees certain bytes, and then loses something.

It runs in the event loop of its test, and carries any number of connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType


class Loss(Enum):
    """What is lost when the bytes come by on their way to the server."""

    REQUEST = auto()
    """They never arrive; the client sees its connection reset."""
    ANSWER = auto()
    """They arrive and are answered; the client sees its connection reset instead."""
    TIME = auto()
    """The client sees its connection reset, and they arrive when `deliver` is called."""


class CuttingProxy:
    """`async with CuttingProxy(port) as proxy`: connect to proxy.port. Armed, it cuts once."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._armed: tuple[tuple[bytes, ...], Loss] | None = None
        self._happened: Callable[[], object] = lambda: True
        self._delivery = asyncio.Event()
        self.delivered = asyncio.Event()
        self.cut = asyncio.Event()
        self.port = 0
        self.round_trips = 0
        """How often something was sent to the server after something had come back."""

    def arm(self, pattern: bytes, loss: Loss, *others: bytes, happened: Callable[[], object] = lambda: True) -> None:
        """Cut when `pattern` comes by, or one of the others. An answer is lost once it has `happened`: of several
        statements that travel together the first may be answered before the last is carried out."""
        self._armed = (pattern, *others), loss
        self._happened = happened
        self.cut.clear()

    def deliver(self) -> None:
        """Let what was delayed arrive."""
        self._delivery.set()

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.deliver()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._to)
        line = _Line(self, reader, writer, server_reader, server_writer)
        try:
            await line.carry()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            server_writer.transport.abort()

    def take(self, data: bytes) -> Loss | None:
        """Whether this is where to cut."""
        if self._armed is None or not any(pattern in data for pattern in self._armed[0]):
            return None
        loss = self._armed[1]
        self._armed = None
        return loss

    async def happened(self) -> None:
        """Until what was sent is carried out."""
        while not await asyncio.to_thread(self._happened):
            pass

    async def delivery(self) -> None:
        """Until `deliver` is called."""
        await self._delivery.wait()


class _Line:
    """One connection."""

    def __init__(
        self,
        proxy: CuttingProxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._server_reader, self._server_writer = server_reader, server_writer
        self._answered = True
        self._muted = False
        self._answer = asyncio.Event()

    async def carry(self) -> None:
        back = asyncio.ensure_future(self._back())
        try:
            await self._forth()
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)

    async def _forth(self) -> None:
        while data := await self._reader.read(1 << 20):
            if self._answered:
                self._proxy.round_trips += 1
                self._answered = False
            loss = self._proxy.take(data)
            if loss is None:
                self._server_writer.write(data)
                continue
            if loss is Loss.ANSWER:
                self._muted = True
                self._server_writer.write(data)
                await self._answer.wait()
                await self._proxy.happened()
            self._writer.transport.abort()
            self._proxy.cut.set()
            if loss is Loss.TIME:
                await self._proxy.delivery()
                self._muted = True
                self._server_writer.write(data)
                await self._answer.wait()
                await self._proxy.happened()
                self._proxy.delivered.set()
            return

    async def _back(self) -> None:
        while data := await self._server_reader.read(1 << 20):
            self._answered = True
            if self._muted:
                self._answer.set()
            else:
                self._writer.write(data)
        self._writer.close()
