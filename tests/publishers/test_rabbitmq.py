"""RabbitMQ, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aio_pika
import pytest

from tests.publishers.documents import run_example
from tests.publishers.messages import made
from tests.servers.rabbitmq import RabbitMQServer
from twicesafe.core.arrived import arrived
from twicesafe.errors import NotDeliveredError, RefusedError
from twicesafe.publishers.rabbitmq import RabbitMQPublisher

pytestmark = pytest.mark.timeout(300)
"""The server takes most of a minute to start where others keep the machine busy."""


class Events:
    """An exchange with a durable queue of `order.*`, seen from the consumer's side."""

    def __init__(self, queue: aio_pika.abc.AbstractQueue) -> None:
        self._queue = queue

    async def taken(self) -> list[aio_pika.abc.AbstractIncomingMessage]:
        """What lies there, oldest first."""
        found = []
        while (incoming := await self._queue.get(no_ack=True, fail=False)) is not None:
            found.append(incoming)
        return found


@asynccontextmanager
async def events(server: RabbitMQServer, name: str) -> AsyncIterator[Events]:
    connection = await aio_pika.connect(server.url)
    async with connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue(name, durable=True)
        await queue.bind(exchange, "order.*")
        yield Events(queue)


def test_a_message_arrives_whole(rabbitmq_server: RabbitMQServer) -> None:
    """R28: what a consumer takes is the message, persistent, under its id, with all that CloudEvents says of it."""

    async def main() -> None:
        publisher = RabbitMQPublisher(rabbitmq_server.url, exchange="whole")
        message = made()
        async with events(rabbitmq_server, "whole") as there:
            await publisher.publish(message)
            (incoming,) = await there.taken()
        await publisher.aclose()
        assert incoming.message_id == message.id
        assert incoming.delivery_mode is aio_pika.DeliveryMode.PERSISTENT
        assert incoming.headers["cloudEvents_type"] == "order.placed"
        came = arrived({k: str(v) for k, v in incoming.headers.items()}, incoming.body)
        assert came == message

    asyncio.run(main())


def test_an_unroutable_message_is_not_delivered(rabbitmq_server: RabbitMQServer) -> None:
    """K, R28: what the exchange routes to no queue is not lost in silence, and its neighbours are delivered."""

    async def main() -> None:
        publisher = RabbitMQPublisher(rabbitmq_server.url, exchange="routes")
        first, stray, last = made("a"), made("b", "invoice.sent"), made("c")
        async with events(rabbitmq_server, "routes") as there:
            came = await publisher.publish_many([first, stray, last])
            assert [incoming.message_id for incoming in await there.taken()] == [first.id, last.id]
            assert came[0] is None and came[2] is None
            with pytest.raises(NotDeliveredError, match=r"routes 'invoice\.sent' to no queue"):
                await publisher.publish(stray)
        await publisher.aclose()

    asyncio.run(main())


def test_a_cancelled_publish_costs_no_other_its_confirmation(
    rabbitmq_server: RabbitMQServer,
) -> None:
    """K, R28: cancelled at the very moment at which the broker's return is read, an unroutable message is over, and
    the next one is confirmed by the same connection."""

    async def main() -> None:
        publisher = RabbitMQPublisher(rabbitmq_server.url, exchange="cancelled", timeout=timedelta(seconds=60))
        async with events(rabbitmq_server, "cancelled") as there:
            await publisher.publish(made("a"))
            connection = publisher._connection
            assert publisher._channel is not None
            channel: Any = await publisher._channel.get_underlay_channel()
            read = channel._on_return_frame

            async def cancelled_meanwhile(frame: Any) -> None:
                trying.cancel()
                await read(frame)

            channel._on_return_frame = cancelled_meanwhile
            trying = asyncio.create_task(publisher.publish(made("b", "invoice.sent")))
            with pytest.raises(asyncio.CancelledError):
                await trying
            channel._on_return_frame = read
            await publisher.publish(made("c"))
            assert len(await there.taken()) == 2
            assert publisher._connection is connection
        await publisher.aclose()

    asyncio.run(main())


def test_an_exchange_that_is_missing_is_named(rabbitmq_server: RabbitMQServer) -> None:
    """R28: the error says what to declare, and once that is done the same publisher delivers."""

    async def main() -> None:
        publisher = RabbitMQPublisher(rabbitmq_server.url, exchange="missing")
        with pytest.raises(NotDeliveredError, match="no exchange 'missing'"):
            await publisher.publish(made())
        async with events(rabbitmq_server, "missing") as there:
            message = made()
            await publisher.publish(message)
            assert [incoming.message_id for incoming in await there.taken()] == [message.id]
        with pytest.raises(RefusedError, match="the type has more than the 255 bytes"):
            await publisher.publish(made(kind="ö" * 200))
        await publisher.aclose()

    asyncio.run(main())


def test_the_documented_example_runs(rabbitmq_server: RabbitMQServer) -> None:
    """R28: what docs/publishers/brokers.md shows of RabbitMQ works on a real server; its own assertions say so."""
    run_example("RabbitMQ", ("amqp://guest:guest@localhost/", rabbitmq_server.url))


def test_only_what_is_confirmed_is_delivered(rabbitmq_server: RabbitMQServer) -> None:
    """I9, R28: killed before it confirms, the broker has not delivered; restarted, it gets the message again."""

    async def main() -> None:
        publisher = RabbitMQPublisher(rabbitmq_server.url, exchange="killed")
        kept, message = made(), made()
        async with events(rabbitmq_server, "killed"):
            await publisher.publish(kept)
        rabbitmq_server.freeze()
        trying = asyncio.create_task(publisher.publish_many([message]))
        await asyncio.wait({trying}, timeout=0.3)
        assert not trying.done()
        rabbitmq_server.kill()
        (came,) = await trying
        assert isinstance(came, NotDeliveredError)
        with pytest.raises(NotDeliveredError, match="could not be reached"):
            await publisher.publish(message)
        rabbitmq_server.restart()  # in this thread, which lasts
        await publisher.publish(message)
        async with events(rabbitmq_server, "killed") as there:
            came_in = [incoming.message_id for incoming in await there.taken()]
        # It may have kept what it did not live to confirm: then it has it twice, and the inbox is for that.
        assert list(dict.fromkeys(came_in)) == [kept.id, message.id]
        await publisher.aclose()

    asyncio.run(main())
