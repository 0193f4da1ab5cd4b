"""Sends a server requests that are due at a steady rate: `python -m benchmarks.flood_load PORT NAME COUNT RATE SECONDS`

COUNT callers, called NAME-0 and so on, in turn, each request under a key of its own, and sent when it is due, whatever
became of those before. On standard output stands how long each took, how late each was begun, which is the load's own
fault and no part of what it took, and what was answered. A process of its own: none of its time is the server's.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter, deque
from uuid import uuid4

BODY = b'{"amount": 100}'
HEAD = (
    "POST /charges HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 15\r\n"
    "Idempotency-Key: {key}\r\nX-Caller: {caller}\r\n\r\n"
)


class Connection(asyncio.Protocol):
    """One request at a time, on a connection that is kept."""

    def __init__(self) -> None:
        self.closed = False
        self._got = b""
        self._answer: asyncio.Future[int] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, request: bytes) -> asyncio.Future[int]:
        """Send it; its status is yet to come."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, whole, body = self._got.partition(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length:")
        if whole and len(body) >= int(length.split(b"\r\n", 1)[0]):
            self._got = b""
            assert self._answer is not None
            self._answer.set_result(int(head[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server hung up"))


async def on_time(port: int, name: str, count: int, rate: float, seconds: float) -> dict[str, object]:
    """See above."""
    took: list[float] = []
    late: list[float] = []
    statuses: Counter[int] = Counter()
    idle: deque[Connection] = deque()
    loop = asyncio.get_running_loop()
    prefix = uuid4().hex[:16]

    async def one(due: float, number: int) -> None:
        since = time.perf_counter()
        late.append(since - due)
        request = HEAD.format(key=f"{prefix}-{number:012d}", caller=f"{name}-{number % count}").encode() + BODY
        connection = None
        while idle and (connection is None or connection.closed):
            connection = idle.pop()
        if connection is None or connection.closed:
            _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        statuses[await connection.ask(request)] += 1
        took.append(time.perf_counter() - since)
        idle.append(connection)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as running:
        for number in range(int(rate * seconds)):
            due = began + number / rate
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            running.create_task(one(due, number))
    wall = time.perf_counter() - began
    return {
        "took": took, "late": late, "statuses": statuses, "rate": len(took) / max(wall, seconds),
        "busy": time.process_time() / wall,
    }  # fmt: skip


if __name__ == "__main__":
    port, name, count, rate, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(on_time(int(port), name, int(count), float(rate), float(seconds)))))
