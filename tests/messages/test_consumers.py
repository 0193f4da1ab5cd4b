"""The consumers of docs/consumers.md: what failed comes again and is handled once, acknowledged after its commit."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aio_pika
import nats
import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import new_id
from tests.messages.relaying import rigged, trial
from tests.publishers.messages import made
from tests.publishers.test_kafka import topic
from tests.servers.nats import NatsServer
from tests.servers.rabbitmq import RabbitMQServer
from tests.servers.tansu import TansuServer
from twicesafe.core.arrived import arrived
from twicesafe.core.message import ce_headers
from twicesafe.errors import InvalidMessageError
from twicesafe.inbox import Inbox, Received
from twicesafe.publishers.kafka import KafkaPublisher
from twicesafe.publishers.nats import NatsPublisher
from twicesafe.publishers.rabbitmq import RabbitMQPublisher

PAGE = Path(__file__).parents[2] / "docs/consumers.md"

pytestmark = pytest.mark.timeout(300)


class Consumer:
    """A section of the page, whose first message fails when it has had its effect, before the commit."""

    def __init__(self, section: str, *changes: tuple[str, str]) -> None:
        top, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
        (text,) = [one for one in sections if one.startswith(f"{section}\n")]
        source = "\n".join(re.findall(r"^```python\n(.*?)^```", top + text, re.MULTILINE | re.DOTALL))
        for shown, run in changes:
            assert shown in source
            source = source.replace(shown, run)
        self.names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, f"{PAGE.name}: {section}", "exec", dont_inherit=True), self.names)
        self.connection: sqlite3.Connection = self.names["connection"]
        self.handled: list[str] = []
        self._handle: Callable[[Any], None] = self.names["handle"]
        self.names["handle"] = self._first_in_vain

    def _first_in_vain(self, message: Any) -> None:
        self.handled.append(message.id)
        if len(self.handled) > 1:
            return self._handle(message)
        with self.connection:
            assert self.names["inbox"].once(self.connection, message)
            self.connection.execute("INSERT INTO invoices VALUES ('in vain')")
            raise ConnectionError

    def done(self, times: int) -> Callable[[], bool]:
        return lambda: len(self.handled) >= times

    def effects(self) -> list[str]:
        """What happened, for good."""
        with sqlite3.connect("billing.db") as another:
            found = [row[0] for row in another.execute("SELECT data FROM invoices")]
        another.close()
        return found


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def queue(server: RabbitMQServer, name: str) -> None:
    """Make an exchange and a queue behind it."""
    async with await aio_pika.connect(server.url) as client:
        channel = await client.channel()
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.FANOUT, durable=True)
        await (await channel.declare_queue(name, durable=True)).bind(exchange)


async def left(server: RabbitMQServer, name: str) -> int:
    """How many messages are there still."""
    async with await aio_pika.connect(server.url) as client:
        channel = await client.channel()
        declared = await channel.declare_queue(name, durable=True, passive=True)
        return declared.declaration_result.message_count or 0


async def publish_twice(server: RabbitMQServer, name: str) -> str:
    """One message, which the queue then holds twice; its id."""
    await queue(server, name)
    publisher, message = RabbitMQPublisher(server.url, exchange=name), made(data=b"o-17")
    await publisher.publish(message)
    await publisher.publish(message)
    await publisher.aclose()
    return message.id


def test_aio_pika(rabbitmq_server: RabbitMQServer) -> None:
    """R29, J: one message that fails once, and comes twice, has its effect once, and the queue is empty then."""

    async def run() -> None:
        one = await publish_twice(rabbitmq_server, "pika")
        consumer = Consumer(
            "aio-pika",
            ("amqp://guest:guest@localhost/", rabbitmq_server.url),
            ('get_queue("billing")', 'get_queue("pika")'),
        )
        failing = asyncio.create_task(consumer.names["consume"](consumer.done(3)))
        with pytest.raises(ConnectionError):
            await failing
        await consumer.names["consume"](consumer.done(3))
        assert consumer.effects() == ["o-17"]
        assert consumer.handled == [one] * 3
        assert await left(rabbitmq_server, "pika") == 0
        consumer.connection.close()

    asyncio.run(run())


def test_faststream(rabbitmq_server: RabbitMQServer) -> None:
    """R29, J: one message that fails once, and comes twice, has its effect once, and the queue is empty then."""

    async def run() -> None:
        one = await publish_twice(rabbitmq_server, "stream")
        consumer = Consumer(
            "FastStream",
            ("amqp://guest:guest@localhost/", rabbitmq_server.url),
            ('RabbitQueue("billing"', 'RabbitQueue("stream"'),
        )
        handle, all_came = consumer.names["handle"], asyncio.Event()

        def counted(message: Any) -> None:
            if consumer.done(2)():
                all_came.set()
            handle(message)

        consumer.names["handle"] = counted
        async with consumer.names["broker"] as broker, asyncio.timeout(60):
            await broker.start()
            await all_came.wait()
        # What aio-pika's own callbacks still have to do, nobody else holds on to.
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()} or {asyncio.create_task(asyncio.sleep(0))})
        assert consumer.effects() == ["o-17"]
        assert consumer.handled == [one] * 3
        assert await left(rabbitmq_server, "stream") == 0
        consumer.connection.close()

    asyncio.run(run())


def test_nats_py(nats_server: NatsServer) -> None:
    """R29, J: a message that fails once has its effect once, and so has the next one; both are acknowledged."""

    async def run() -> None:
        client = await nats.connect(nats_server.url)
        await client.jetstream().add_stream(name="orders", subjects=["order.*"])
        publisher = NatsPublisher(nats_server.url)
        one, two = made(data=b"o-17"), made(data=b"o-18")
        await publisher.publish_many([one, two])
        await publisher.aclose()
        consumer = Consumer("nats-py", ("nats://localhost:4222", nats_server.url), ("delay=1", "delay=0.01"))
        await consumer.names["consume_jetstream"](consumer.done(3))
        assert sorted(consumer.effects()) == ["o-17", "o-18"]
        assert sorted(consumer.handled) == sorted([one.id, one.id, two.id])
        info = await client.jetstream().consumer_info("orders", "billing")
        assert (info.num_ack_pending, info.num_pending) == (0, 0)
        await client.close()
        consumer.connection.close()

    asyncio.run(run())


def test_aiokafka(tansu_server: TansuServer) -> None:
    """R29, J: a consumer that ends with a failure is started again where it was, and every effect happens once."""

    async def run() -> None:
        await topic(tansu_server, "consumed")
        publisher = KafkaPublisher(tansu_server.address, topic="consumed", idempotent=False)
        one = made(data=b"o-17")
        await publisher.publish(one)
        await publisher.publish(one)
        await publisher.aclose()
        consumer = Consumer("aiokafka", ("localhost:9092", tansu_server.address), ('"orders"', '"consumed"'))
        with pytest.raises(ConnectionError):
            await consumer.names["consume_kafka"](consumer.done(3))
        await consumer.names["consume_kafka"](consumer.done(3))
        assert consumer.effects() == ["o-17"]
        assert consumer.handled == [one.id] * 3
        consumer.connection.close()

    asyncio.run(run())


def test_celery() -> None:
    """R29: a task that is delivered twice under its id has its effect once; the page itself asserts it."""
    consumer = Consumer("Celery")
    assert consumer.effects() == ["o-17"]
    consumer.connection.close()


def test_the_relay_sends_a_place_that_the_inbox_takes(databases: Databases) -> None:
    """R28, R29: of two messages that change places on the way, the one that comes late is told False."""

    async def run() -> None:
        async with rigged(databases, "sqlite") as rig:
            aggregate = new_id()
            await rig.add(aggregate, aggregate)
            await rig.relay().run_once()
        first, second = (arrived(dict(ce_headers(message)), message.data) for message in rig.receiver.arrived)
        assert dict(first.headers)["sequence"] < dict(second.headers)["sequence"]
        inbox = Inbox("latest")
        with sqlite3.connect(rig.database.where) as connection:
            assert [inbox.once(connection, Received.in_order(one)) for one in (second, first)] == [True, False]
        connection.close()
        endless = first._replace(headers=(("sequence", "9" * 5000),))
        for lacking in (made(), first._replace(aggregateid=""), first._replace(headers=(("sequence", "x"),)), endless):
            with pytest.raises(InvalidMessageError, match="place"):
                Received.in_order(lacking)

    trial(run)
