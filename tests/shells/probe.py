"""The probe application of the trials, and a server that drives an ASGI application message by message.

`POST /jobs` appends one row to a ledger and answers `201 {"n": rows}`; knobs choose what goes wrong.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twicesafe.asgi import current

Lines = Sequence[tuple[bytes, bytes]]
RETENTION = (b"idempotency-key-retention", b"86400")
"""What every answer to a request under a key says first, by default."""


@dataclass
class Probe:
    """An ASGI application with knobs. Effects are `len(ledger)`."""

    ledger: list[bytes] = field(default_factory=list)
    effect: Callable[[dict[str, Any], bytes], Awaitable[int]] | None = None
    status: int = 201
    headers: Lines = ((b"content-type", b"application/json"),)
    body: bytes | None = None
    chunks: Sequence[bytes] | None = None
    before: Callable[[], Awaitable[None]] | None = None
    after: Callable[[], Awaitable[None]] | None = None
    between: Callable[[int], Awaitable[None]] | None = None
    raise_before: BaseException | None = None
    raise_after: BaseException | None = None
    background: Callable[[], Awaitable[None]] | None = None
    reads_body: bool = True
    seen: list[bytes] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    entered: int = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.entered += 1
        body = b""
        if self.reads_body:
            more = True
            while more:
                message = await receive()
                self.messages.append(message)
                assert message["type"] == "http.request", message
                body += message.get("body", b"")
                more = message.get("more_body", False)
        self.seen.append(body)
        if self.before:
            await self.before()
        if self.raise_before is not None:
            raise self.raise_before
        n = await self.append(scope, body)
        if self.after:
            await self.after()
        if self.raise_after is not None:
            raise self.raise_after
        await self.answer(n, send)
        if self.background:
            await self.background()

    async def append(self, scope: dict[str, Any], body: bytes) -> int:
        if self.effect is not None:
            return await self.effect(scope, body)
        self.ledger.append(body)
        return len(self.ledger)

    async def answer(self, n: int, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": list(self.headers)})
        if self.chunks is None:
            body = json.dumps({"n": n}).encode() if self.body is None else self.body
            await send({"type": "http.response.body", "body": body})
            return
        for number, chunk in enumerate(self.chunks):
            if self.between:
                await self.between(number)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if self.between:
            await self.between(len(self.chunks))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def append_in_transaction(scope: dict[str, Any], body: bytes) -> int:
    """The effect of a transactional operation: a row in the store's own database."""
    connection = current(scope).connection
    await connection.execute("INSERT INTO ledger (body) VALUES (?)", (body,))
    cursor = await connection.execute("SELECT count(*) FROM ledger")
    row = await cursor.fetchone()
    return int(row[0])


@dataclass
class Reply:
    """What the client got: `raised` is what reached the server."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    raised: BaseException | None = None

    @property
    def starts(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == "http.response.start"]

    @property
    def status(self) -> int | None:
        assert len(self.starts) <= 1, self.messages
        return self.starts[0]["status"] if self.starts else None

    @property
    def lines(self) -> list[tuple[bytes, bytes]]:
        return list(self.starts[0]["headers"])

    def header(self, name: bytes) -> bytes | None:
        found = [line for key, line in self.lines if key == name]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.messages if m["type"] == "http.response.body")

    @property
    def whole(self) -> bool:
        ends = [m for m in self.messages if m["type"] == "http.response.body" and not m.get("more_body", False)]
        return len(ends) == 1

    @property
    def replayed(self) -> bool:
        return (b"idempotent-replayed", b"true") in self.lines

    @property
    def problem(self) -> dict[str, Any]:
        assert self.header(b"content-type") == b"application/problem+json", self.lines
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found

    @property
    def kind(self) -> str:
        """The last part of the problem type."""
        return str(self.problem["type"]).rsplit(":", 1)[1]


class Wire:
    """One request on its way: the test may hang up, look at what has arrived, or wait for the end."""

    def __init__(
        self,
        app: Any,
        *,
        method: str = "POST",
        path: str = "/jobs",
        raw_path: bytes | None = None,
        query: bytes = b"",
        key: bytes | str | None = "k-0001-0001-0001",
        headers: Lines = (),
        body: bytes = b'{"amount": 1}',
        parts: Sequence[bytes] | None = None,
        cut: bool = False,
        on_send: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        lines = [(b"host", b"test"), (b"content-type", b"application/json"), *headers]
        if headers and any(name == b"content-type" for name, _ in headers):
            del lines[1]
        if key is not None:
            lines.append((b"idempotency-key", key.encode() if isinstance(key, str) else key))
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode() if raw_path is None else raw_path,
            "root_path": "",
            "query_string": query,
            "headers": lines,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "extensions": {},
            "state": {},
        }
        pieces = [body] if parts is None else list(parts)
        self._queue = [
            {"type": "http.request", "body": piece, "more_body": cut or i < len(pieces) - 1}
            for i, piece in enumerate(pieces)
        ]
        if cut:
            self._queue.append({"type": "http.disconnect"})
        self._app = app
        self._gone = asyncio.Event()
        self._on_send = on_send
        self.reply = Reply()
        self.task: asyncio.Task[None] | None = None

    async def receive(self) -> dict[str, Any]:
        if self._queue:
            return self._queue.pop(0)
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if self._on_send is not None:
            self._on_send(message)
        self.reply.messages.append(dict(message))

    def hang_up(self) -> None:
        self._gone.set()

    async def _run(self) -> None:
        await self._app(self.scope, self.receive, self.send)

    def start(self) -> Wire:
        self.task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def end(self) -> Reply:
        if self.task is None:
            self.start()
        assert self.task is not None
        try:
            await self.task
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and not self.task.cancelled():
                raise
            self.reply.raised = error
        return self.reply


async def post(app: Any, **how: Any) -> Reply:
    """One request from start to end. Raises what the application raised, unless `raises` says that it is expected."""
    raises = how.pop("raises", ())
    reply = await Wire(app, **how).end()
    if reply.raised is not None and not isinstance(reply.raised, raises):
        raise reply.raised
    return reply
