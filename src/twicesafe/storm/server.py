"""One server process of the storm: reads what it is to be on standard input, says where it listens, and serves.

    python -m twicesafe.storm.server

The starter is storm/fleet.py; the lines they exchange are described there.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from contextlib import AsyncExitStack
from typing import Any, Final

from twicesafe.demo.serving import serve
from twicesafe.errors import StoreUnavailableError
from twicesafe.incoming import ASGIScope, Receive
from twicesafe.keyed import ASGIApp, Send
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.urls import open_async_store
from twicesafe.storm.databases import ledger_in
from twicesafe.storm.payments import naive_payments, safe_payments

BACKLOG: Final = 1024
PATIENCE: Final = 20.0
"""Seconds a starting server waits for its database."""


def main() -> None:
    """Serve until SIGTERM, or until standard input ends."""
    settings = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_starter, daemon=True).start()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    serve(_Application(settings, listener.getsockname()[1]), listener)


def _end_with_starter() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


async def _reached(store: AsyncStore) -> None:
    """Return when `store` is there, which in a storm it may not be at once, and has its tables."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await store.check_schema()
            except StoreUnavailableError:
                await asyncio.sleep(0.1)
            else:
                return


class _Application:
    """The service, opened when the server starts and closed when it ends."""

    def __init__(self, settings: dict[str, Any], port: int) -> None:
        self._settings = settings
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
            os.write(1, f"ready {self._port}\n".encode())
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _opened(self, stack: AsyncExitStack) -> ASGIApp:
        ledger = await stack.enter_async_context(ledger_in(self._settings["ledger"]))
        if self._settings["naive"]:
            return naive_payments(ledger, self._settings["slow"])
        store = open_async_store(self._settings["store"])
        stack.push_async_callback(store.aclose)
        await _reached(store)
        return safe_payments(ledger, store, self._settings["slow"])


if __name__ == "__main__":
    main()
