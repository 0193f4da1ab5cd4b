"""Messages to RabbitMQ, by aio-pika: confirmed by the broker, persistent, and never lost for want of a queue.

Headers are those of CloudEvents' binding to AMQP 1.0 (`cloudEvents_id` and so on), which has none of its own to 0.9.1;
so they arrive rightly at consumers of either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import CONNECTION_EXCEPTIONS, ChannelNotFoundEntity, DeliveryError, PublishError

from twicesafe.core.message import Message, attributes
from twicesafe.errors import NotDeliveredError, RefusedError
from twicesafe.publishers.destinations import DEFAULT_TIMEOUT, Destination, each, naming, of_type, seconds

__all__ = ["RabbitMQPublisher"]

_PREFIX: Final = "cloudEvents_"
_LONGEST: Final = 255
_CLOSING: Final = 1.0
"""Seconds for a farewell that the broker may be unable to answer."""


class RabbitMQPublisher:
    """A Publisher to one exchange, which has to be there. Belongs to the event loop that it first publishes in.

    `url` is `amqp://` or `amqps://`. `routing_key` is by default the message's type. A message that the exchange routes
    to no queue is not delivered: NotDeliveredError, and another try when the relay's policy says so. It connects when
    it first publishes, and again after its connection broke.
    """

    def __init__(
        self,
        url: str,
        *,
        exchange: str,
        routing_key: Destination = of_type,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        self._url = url
        self._exchange = exchange
        self._routing_key = naming("routing_key", routing_key)
        self._timeout = seconds(timeout)
        self._opening = asyncio.Lock()
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def publish(self, message: Message) -> None:
        """Returns when the broker has confirmed the message: durable queues have it on disk, quorum queues on most."""
        routing_key = self._routing_key(message)
        for name, text in (("id", message.id), ("type", message.type), ("routing key", routing_key)):
            if len(text.encode()) > _LONGEST:
                raise RefusedError(f"the {name} has more than the {_LONGEST} bytes that AMQP gives it")
        outgoing = aio_pika.Message(
            message.data,
            message_id=message.id,
            type=message.type,
            content_type=message.datacontenttype,
            headers={f"{_PREFIX}{name}": text for name, text in attributes(message)},
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        # Whoever is cancelled leaves it to come to its end. A confirmation that is cancelled as the broker's return is
        # read ends what reads the whole channel, and with it the confirmations of all others.
        under_way = asyncio.create_task(self._confirmed(outgoing, routing_key))
        self._under_way.add(under_way)
        under_way.add_done_callback(self._over)
        await asyncio.shield(under_way)

    def _over(self, ended: asyncio.Task[None]) -> None:
        self._under_way.discard(ended)
        if not ended.cancelled():
            # Nobody may be there to hear of it.
            ended.exception()

    async def _confirmed(self, outgoing: aio_pika.Message, routing_key: str) -> None:
        channel = None
        try:
            async with asyncio.timeout(self._timeout):
                channel = await self._opened()
                exchange = await channel.get_exchange(self._exchange, ensure=False)
                await exchange.publish(outgoing, routing_key, mandatory=True)
        except PublishError as error:
            raise NotDeliveredError(
                f"exchange {self._exchange!r} routes {routing_key!r} to no queue: declare and bind one"
            ) from error
        except DeliveryError as error:
            raise NotDeliveredError("RabbitMQ rejected the message: a queue is full, or has lost its node") from error
        except ChannelNotFoundEntity as error:
            raise NotDeliveredError(f"there is no exchange {self._exchange!r}: declare it") from error
        except TimeoutError as error:
            # It may be a connection that nothing comes through any more.
            if channel is not None and channel is self._channel:
                await self._let_go()
            raise NotDeliveredError(f"RabbitMQ did not confirm the message within {self._timeout:g} s") from error
        except CONNECTION_EXCEPTIONS as error:
            raise NotDeliveredError(f"RabbitMQ could not be reached, or went away: {type(error).__name__}") from error

    async def publish_many(self, messages: Sequence[Message]) -> list[BaseException | None]:
        """Waits for all their confirmations together."""
        return await each(self.publish, messages)

    async def aclose(self) -> None:
        """Close the connection. A later publish opens another."""
        async with self._opening:
            await self._let_go()

    async def _opened(self) -> AbstractChannel:
        async with self._opening:
            if self._channel is not None and not self._channel.is_closed:
                return self._channel
            # Without a channel the connection is in doubt: aio-pika's own word for it may come late.
            await self._let_go()
            try:
                self._connection = await aio_pika.connect(self._url, timeout=self._timeout)
                self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
            except BaseException:
                await self._let_go()
                raise
            return self._channel

    async def _let_go(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                async with asyncio.timeout(_CLOSING):
                    await connection.close()
