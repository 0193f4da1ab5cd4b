"""Applications under test: a good one and bad ones, each in a few lines, counting what it did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from twicesafe import PUBLIC, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.wsgi import IdempotencyMiddleware as WsgiMiddleware


class Shop:
    """An ASGI application without any protection."""

    def __init__(self) -> None:
        self.charges: list[Any] = []
        self.running = False
        self.arrived = 0
        self.meet: asyncio.Barrier | None = None
        self.said: Callable[[], tuple[int, bytes]] = lambda: (201, b'{"id":%d}' % len(self.charges))

    def count(self) -> int:
        return len(self.charges)

    async def acount(self) -> int:
        return len(self.charges)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] == "lifespan.startup":
                self.running = True
                await send({"type": "lifespan.startup.complete"})
            self.running = False
            await send({"type": f"{message['type']}.complete"})
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body"):
                break
        self.arrived += 1
        if self.meet is not None and self.arrived <= self.meet.parties:
            await self.meet.wait()
        self.charges.append(json.loads(body or b"null"))
        status, answer = self.said()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def protected(self) -> Any:
        """The same behind twicesafe."""
        return IdempotencyMiddleware(self, AsyncMemoryStore(), scope=PUBLIC, policy=Policy(required=True))


class BlockingShop:
    """The same for WSGI."""

    def __init__(self) -> None:
        self.charges: list[bytes] = []

    def count(self) -> int:
        return len(self.charges)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.charges.append(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        start_response("201 Created", [("Content-Type", "application/json")])
        return [b'{"id":%d}' % len(self.charges)]

    def protected(self) -> Any:
        """The same behind twicesafe."""
        return WsgiMiddleware(self, MemoryStore(), scope=PUBLIC, policy=Policy(required=True))
