"""The consumer's process: handles what comes by the way that it is told, and keeps an inbox."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, suppress
from typing import Any

from twicesafe.storm.messages.books import ConsumerBooks
from twicesafe.storm.messages.ways import way_to
from twicesafe.storm.reaching import reached
from twicesafe.storm.started import say_ready


def work(told: dict[str, Any]) -> None:
    """Work until SIGTERM."""
    asyncio.run(_work(told))


async def _work(told: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(reached(told["books"]))
        consuming = asyncio.create_task(way_to(told["way"]["to"]).consume(told["way"], ConsumerBooks(store)))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consuming.cancel)
        say_ready()
        with suppress(asyncio.CancelledError):
            await consuming
