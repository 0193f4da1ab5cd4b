"""RabbitMQ between relays and consumer: a private server, with a durable queue for each lane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aio_pika
from aio_pika.exceptions import CONNECTION_EXCEPTIONS

from twicesafe.core.arrived import arrived
from twicesafe.errors import StoreUnavailableError
from twicesafe.outbox import Publisher
from twicesafe.publishers.rabbitmq import RabbitMQPublisher
from twicesafe.storm.fleet import Fleet
from twicesafe.storm.messages.books import ConsumerBooks
from twicesafe.storm.messages.way import AGAIN, LANES, lane_of
from twicesafe.storm.rabbitmq import PrivateRabbitMQ

_EXCHANGE: Final = "storm"
_PREFETCH: Final = 50


class RabbitMQ:
    """A Way."""

    def __init__(self, server: PrivateRabbitMQ) -> None:
        self.told = {"to": "rabbitmq", "url": server.url}
        self._server = server

    async def restart(self, consumer: Fleet, *, crash: bool) -> None:  # noqa: ARG002 - it has to cope
        """See Way.restart."""
        await asyncio.to_thread(self._server.restart, crash=crash)


@asynccontextmanager
async def opened() -> AsyncIterator[RabbitMQ]:
    """A server of its own, with exchange and queues."""
    with PrivateRabbitMQ() as server:
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(_EXCHANGE, aio_pika.ExchangeType.DIRECT, durable=True)
            for lane in range(LANES):
                queue = await channel.declare_queue(f"{_EXCHANGE}.{lane}", durable=True)
                await queue.bind(exchange, str(lane))
        yield RabbitMQ(server)


def publisher(told: dict[str, Any]) -> Publisher:
    """To the exchange, by the aggregate's lane."""
    return RabbitMQPublisher(told["url"], exchange=_EXCHANGE, routing_key=lane_of)


async def consume(told: dict[str, Any], books: ConsumerBooks) -> None:
    """Handle what comes in all lanes until cancelled."""
    async with asyncio.TaskGroup() as lanes:
        for lane in range(LANES):
            lanes.create_task(_lane(told["url"], f"{_EXCHANGE}.{lane}", books))


async def _lane(url: str, name: str, books: ConsumerBooks) -> None:
    while True:
        try:
            async with await aio_pika.connect(url) as connection:
                channel = await connection.channel()
                await channel.set_qos(prefetch_count=_PREFETCH)
                queue = await channel.get_queue(name)
                async with queue.iterator() as incoming:
                    async for one in incoming:
                        await books.take(arrived({name: str(value) for name, value in one.headers.items()}, one.body))
                        await one.ack()
        except (*CONNECTION_EXCEPTIONS, StoreUnavailableError, TimeoutError):
            # What is not acknowledged comes again, in its place.
            pass
        await asyncio.sleep(AGAIN)
