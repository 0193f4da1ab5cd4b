"""Messages to Kafka, by aiokafka: an idempotent producer, acknowledged by every replica in sync.

Headers are those of CloudEvents' binding to Kafka (`ce_id` and so on). The key is the aggregate's id: one aggregate's
messages lie in one partition, in their order.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]  # it brings no types
from aiokafka.errors import (  # type: ignore[import-untyped]  # likewise
    KafkaError,
    MessageSizeTooLargeError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
)

from twicesafe.core.message import Message, attributes
from twicesafe.errors import NotDeliveredError, RefusedError
from twicesafe.publishers.destinations import DEFAULT_TIMEOUT, Destination, each, naming, seconds

__all__ = ["KafkaPublisher"]

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_STOPPING: Final = 1.0
"""Seconds for a farewell that the broker may be unable to answer."""


class KafkaPublisher:
    """A Publisher to topics. Belongs to the event loop that it first publishes in.

    `servers` are the bootstrap servers, `host:port`. `topic` is one topic, or by default the message's aggregate type.
    `idempotent=False` is for brokers of Kafka's protocol that have no idempotent producers: order stays as it is, and
    a retry within the client may leave a second copy. `producer` is more for AIOKafkaProducer: SASL, TLS, compression.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        topic: Destination = lambda message: message.aggregatetype,
        idempotent: bool = True,
        timeout: timedelta = DEFAULT_TIMEOUT,
        producer: Mapping[str, Any] | None = None,
    ) -> None:
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        self._topic = naming("topic", topic)
        self._timeout = seconds(timeout)
        self._options = {
            **(producer or {}),
            "enable_idempotence": idempotent,
            "acks": "all",
            "request_timeout_ms": int(self._timeout * 1000),
        }
        self._opening = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None

    async def publish(self, message: Message) -> None:
        """Returns when all of the partition's replicas in sync have the message."""
        topic = self._topic(message)
        if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
            # Asked for its metadata, the client would ask again and again.
            raise RefusedError(f"{topic!r} cannot be a topic's name")
        used = None
        try:
            async with asyncio.timeout(self._timeout):
                used = await self._started()
                await used.send_and_wait(
                    topic, message.data, key=message.aggregateid.encode(), headers=headers(message)
                )
        except MessageSizeTooLargeError as error:
            raise RefusedError("the message is larger than the topic or the producer allows") from error
        except UnknownTopicOrPartitionError as error:
            raise NotDeliveredError(f"there is no topic {topic!r}: make it") from error
        except KafkaError as error:
            await self._abandon(used)
            raise NotDeliveredError(f"Kafka did not take the message for topic {topic!r}: {error}") from error
        except TimeoutError as error:
            await self._abandon(used)
            raise NotDeliveredError(f"Kafka did not acknowledge the message within {self._timeout:g} s") from error

    async def publish_many(self, messages: Sequence[Message]) -> list[BaseException | None]:
        """Waits for all their acknowledgements together; those of a partition go in one batch."""
        return await each(self.publish, messages)

    async def aclose(self) -> None:
        """Stop the producer. A later publish starts another."""
        await self._abandon(self._producer)

    async def _started(self) -> AIOKafkaProducer:
        async with self._opening:
            if self._producer is None:
                made = AIOKafkaProducer(bootstrap_servers=self._servers, **self._options)
                try:
                    await made.start()
                except BaseException:
                    await _stopped(made)
                    raise
                self._producer = made
            return self._producer

    async def _abandon(self, producer: AIOKafkaProducer | None) -> None:
        # After a failure nobody knows whether a batch is still on its way: a new producer knows of none.
        if producer is not None:
            if producer is self._producer:
                self._producer = None
            await _stopped(producer)


async def _stopped(producer: AIOKafkaProducer) -> None:
    with suppress(Exception):
        try:
            async with asyncio.timeout(_STOPPING):
                await producer.stop()
        except BaseException:
            # It was flushing, for a broker that may be gone. Left like this it would go on trying beside its
            # successor, and keep its connection.
            await _ended(producer)
            raise


async def _ended(producer: AIOKafkaProducer) -> None:
    """Give up what it has not sent."""
    sender = producer._sender.sender_task  # noqa: SLF001 - there is no other way
    if sender is not None:
        sender.cancel()
    await producer.client.close()
    producer._message_accumulator.fail_all(ProducerClosed())  # noqa: SLF001 - likewise
    if sender is not None:
        await asyncio.wait({sender}, timeout=_STOPPING)
    await producer.client.close()


def headers(message: Message) -> list[tuple[str, bytes]]:
    """CloudEvents' attributes as Kafka carries them: UTF-8, and the content type by its own name."""
    found = [(f"ce_{name}", text.encode()) for name, text in attributes(message)]
    return [*found, ("content-type", message.datacontenttype.encode())]
