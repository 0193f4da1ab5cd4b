"""A worker's process in a storm: goes on with what broke off, asks the provider about what is unknown, and reaps."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

from twicesafe.demo.provider.client import ProviderClient
from twicesafe.reaper import AsyncReaper
from twicesafe.storm.announcing import ByOutbox, Silent
from twicesafe.storm.databases import ledger_in
from twicesafe.storm.operation import Orders
from twicesafe.storm.reaching import reached
from twicesafe.storm.started import say_ready
from twicesafe.worker import Worker

EVERY: Final = timedelta(milliseconds=500)


def work(told: dict[str, Any]) -> None:
    """Work until SIGTERM."""
    asyncio.run(_work(told))


async def _work(told: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(ledger_in(told["ledger"]))
        provider = await stack.enter_async_context(ProviderClient(told["provider"]))
        store = await stack.enter_async_context(reached(told["store"]))
        announcer = Silent() if told["events"] is None else ByOutbox(ledger)
        orders = Orders(store, ledger, provider, 0.0, announcer)
        worker = Worker(orders.once, orders.reconcilers, AsyncReaper(store), every=EVERY)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        say_ready()
        await worker.run()
