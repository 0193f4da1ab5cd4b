"""A relay's process in a storm with an outbox: brings events to the consumer, and dies now and then at the worst
point."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

from twicesafe.outbox import DeliveryPolicy, Message, Publisher
from twicesafe.outbox.relay import Relay
from twicesafe.storm.announcing import publisher
from twicesafe.storm.plan import Fault
from twicesafe.storm.reaching import reached
from twicesafe.storm.started import die_at, say_ready
from twicesafe.worker import Worker

LEASE: Final = timedelta(seconds=10)
"""For so long the messages of one that died wait for another. Longer than a round on a busy machine."""
AT_ONCE: Final = 8
"""Not more than the consumer answers well within the time-out, or none would be answered in time."""
EVERY: Final = timedelta(milliseconds=200)
POLICY: Final = DeliveryPolicy(
    attempts=10_000, first_delay=timedelta(milliseconds=200), longest_delay=timedelta(seconds=2)
)
"""The storm asks whether a message arrives once, not whether a relay gives up in time."""


class Mortal:
    """A publisher, whose process dies when `lives` messages were acknowledged: before the last of them is marked."""

    def __init__(self, publisher: Publisher, lives: int) -> None:
        self._publisher = publisher
        self._left = lives

    async def publish(self, message: Message) -> None:
        """Returns when the receiver has acknowledged it, if this process still lives."""
        await self._publisher.publish(message)
        self._left -= 1
        if not self._left:
            die_at(Fault.KILL_AFTER_DELIVERY, "")


def work(told: dict[str, Any]) -> None:
    """Work until SIGTERM."""
    asyncio.run(_work(told))


async def _work(told: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(reached(told["store"]))
        webhooks = publisher(told["port"])
        stack.push_async_callback(webhooks.aclose)
        # A relay marks what arrived at the end of a round: one that never lived to see it would bring nothing forward.
        batch = told["lives"] // 2
        relay = Relay(store, Mortal(webhooks, told["lives"]), policy=POLICY, lease=LEASE, batch=batch, at_once=AT_ONCE)
        worker = Worker(relay, every=EVERY)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        say_ready()
        await worker.run()
