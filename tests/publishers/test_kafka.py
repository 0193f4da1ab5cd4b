"""The Kafka publisher, on Tansu: a broker of Kafka's protocol, though not Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.publishers.documents import run_example
from tests.publishers.messages import PATIENT, made
from tests.servers.tansu import TansuServer
from twicesafe.core.arrived import arrived
from twicesafe.errors import NotDeliveredError, RefusedError
from twicesafe.publishers.kafka import KafkaPublisher


async def topic(server: TansuServer, name: str) -> None:
    """Make one of three partitions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=server.address)
    await admin.start()
    await admin.create_topics([NewTopic(name, 3, 1)])
    await admin.close()


@asynccontextmanager
async def reading(server: TansuServer, name: str) -> AsyncIterator[AIOKafkaConsumer]:
    """All of the topic's partitions, from their beginning."""
    consumer = AIOKafkaConsumer(bootstrap_servers=server.address)
    await consumer.start()
    partitions = [TopicPartition(name, number) for number in range(3)]
    consumer.assign(partitions)
    await consumer.seek_to_beginning(*partitions)
    yield consumer
    await consumer.stop()


def test_a_message_arrives_whole(tansu_server: TansuServer) -> None:
    """R28: what a consumer takes is the message, and one aggregate's messages lie in one partition, in their order."""

    async def main() -> None:
        await topic(tansu_server, "orders")
        publisher = KafkaPublisher(tansu_server.address, idempotent=False)
        sent = [made(about) for about in ("a", "b", "c", "d")]
        assert await publisher.publish_many(sent) == [None] * 4
        again = made("a")
        await publisher.publish(again)
        await publisher.aclose()
        async with reading(tansu_server, "orders") as there:
            found = [await there.getone() for _ in range(5)]
        came = {record.key: [] for record in found}
        for record in found:
            came[record.key].append(arrived(dict(record.headers), record.value))
        plain = [*sent, again]
        assert came == {b"a": [plain[0], plain[4]], b"b": [plain[1]], b"c": [plain[2]], b"d": [plain[3]]}
        assert len({record.partition for record in found if record.key == b"a"}) == 1

    asyncio.run(main())


def test_a_broker_without_idempotent_producers_gets_nothing(tansu_server: TansuServer) -> None:
    """R28: the producer is idempotent unless told otherwise, and where it cannot be, nothing is reported delivered."""

    async def main() -> None:
        await topic(tansu_server, "strict")
        publisher = KafkaPublisher(tansu_server.address, topic="strict")
        (came,) = await publisher.publish_many([made()])
        await publisher.aclose()
        async with reading(tansu_server, "strict") as there:
            assert set((await there.end_offsets(there.assignment())).values()) == {0}
        assert isinstance(came, NotDeliveredError)

    asyncio.run(main())


def test_a_topic_that_cannot_be_is_refused(tansu_server: TansuServer) -> None:
    """R28: no try would ever deliver to a name that Kafka does not allow."""

    async def main() -> None:
        publisher = KafkaPublisher(tansu_server.address, topic="no/topic", idempotent=False)
        with pytest.raises(RefusedError, match="cannot be a topic's name"):
            await publisher.publish(made())
        await publisher.aclose()

    asyncio.run(main())


def test_the_documented_example_runs(tansu_server: TansuServer) -> None:
    """R28: what docs/publishers/brokers.md shows of Kafka works on Tansu, but for the idempotent producer."""
    asyncio.run(topic(tansu_server, "documented"))
    run_example(
        "Kafka",
        ("localhost:9092", tansu_server.address),
        ('topic="orders")', 'topic="documented", idempotent=False)'),
        ('AIOKafkaConsumer("orders"', 'AIOKafkaConsumer("documented"'),
    )


def test_only_what_is_acknowledged_is_delivered(tansu_server: TansuServer) -> None:
    """I9, R28: killed before it acknowledges, the broker has not delivered; restarted, it gets the message again."""

    async def main() -> None:
        await topic(tansu_server, "killed")
        publisher = KafkaPublisher(tansu_server.address, topic="killed", idempotent=False, timeout=PATIENT)
        message = made()
        await publisher.publish(made())
        tansu_server.freeze()
        publisher._timeout = 2.0
        trying = asyncio.create_task(publisher.publish(message))
        await asyncio.wait({trying}, timeout=0.2)
        tansu_server.kill()
        with pytest.raises(NotDeliveredError):
            await trying
        # What it gave up is given up: nothing of it goes on beside what comes after.
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
        tansu_server.restart()  # in this thread, which lasts
        publisher._timeout = PATIENT.total_seconds()
        await topic(tansu_server, "killed")
        for _ in range(30):
            (came,) = await publisher.publish_many([message])
            if came is None:
                break
            assert isinstance(came, NotDeliveredError)
        await publisher.aclose()
        async with reading(tansu_server, "killed") as there:
            assert arrived(dict((await there.getone()).headers), b"").id == message.id

    asyncio.run(main())
