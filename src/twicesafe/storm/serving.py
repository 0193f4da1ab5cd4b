"""Serves a storm's application on a free port, opened when its process starts and closed when it ends."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from twicesafe.demo.serving import serve
from twicesafe.incoming import ASGIScope, Receive
from twicesafe.keyed import ASGIApp, Send
from twicesafe.storm.started import say_ready

BACKLOG: Final = 1024


def serve_storm(opened: Callable[[AsyncExitStack], Awaitable[ASGIApp]]) -> None:
    """Serve what `opened` gives until SIGTERM. What it puts on the stack is closed then."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    serve(_Application(opened, listener.getsockname()[1]), listener)


class _Application:
    def __init__(self, opened: Callable[[AsyncExitStack], Awaitable[ASGIApp]], port: int) -> None:
        self._opened = opened
        self._port = port
        self._app: ASGIApp | None = None

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            assert self._app is not None
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            try:
                self._app = await self._opened(stack)
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs in the log
                await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
                return
            await send({"type": "lifespan.startup.complete"})
            say_ready(self._port)
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
