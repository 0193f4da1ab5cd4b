"""A relay's process: brings messages from the outbox to the way that it is told."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

from twicesafe.outbox.relay import Relay
from twicesafe.storm.messages.ways import way_to
from twicesafe.storm.reaching import reached
from twicesafe.storm.relay import EVERY, POLICY
from twicesafe.storm.started import say_ready
from twicesafe.worker import Worker

LEASE: Final = timedelta(seconds=3)
"""Much longer than a round, and short enough for heirs who live for some seconds themselves."""
BATCH: Final = 100
"""A relay that lives for some seconds marks what it delivered in them, on a busy machine too."""


def work(told: dict[str, Any]) -> None:
    """Work until SIGTERM."""
    asyncio.run(_work(told))


async def _work(told: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(reached(told["store"]))
        publisher = way_to(told["way"]["to"]).publisher(told["way"])
        stack.push_async_callback(publisher.aclose)
        worker = Worker(Relay(store, publisher, policy=POLICY, lease=LEASE, batch=BATCH), every=EVERY)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        say_ready()
        await worker.run()
