"""Publishers whose broker is away, lets nobody in or refuses say nothing of messages and passwords."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.client.scripted import answer, reset_after_commit, serving
from tests.servers.nats import NatsServer
from tests.servers.redis import RedisServer
from tests.telemetry.searched import BODY, PASSWORD, Searched, planted
from twicesafe.core.message import Message
from twicesafe.errors import TwicesafeError
from twicesafe.publishers.nats import NatsPublisher
from twicesafe.publishers.rabbitmq import RabbitMQPublisher
from twicesafe.publishers.redis_streams import RedisStreamsPublisher
from twicesafe.publishers.webhooks import WebhookPublisher

SIGNING = "whsec_" + base64.b64encode(planted("signing").encode()).decode()
SOON = timedelta(seconds=1)
MESSAGE = Message(planted("id"), "/orders", "order.placed", "order", "o-1", BODY.encode(), headers=(("x", BODY),))


def published(searched: Searched, make: Callable[[], Any]) -> None:
    """It cannot be delivered, and whatever is raised is searched. One alone, and two together."""

    async def trial() -> None:
        publisher = make()
        try:
            with pytest.raises(TwicesafeError) as refused:
                await publisher.publish(MESSAGE)
            searched.error("a publisher", refused.value)
            if hasattr(publisher, "publish_many"):
                for error in await publisher.publish_many([MESSAGE, MESSAGE]):
                    assert isinstance(error, TwicesafeError)
                    searched.error("a publisher of many", error)
        finally:
            await publisher.aclose()

    asyncio.run(trial())


def test_brokers_that_are_away(searched: Searched) -> None:
    """R22, R28: nobody listens: neither the broker's address with its password nor the message is told."""
    where = f"ada:{PASSWORD}@127.0.0.1:1"
    for make in (
        lambda: RabbitMQPublisher(f"amqp://{where}/", exchange="orders", timeout=SOON),
        lambda: RedisStreamsPublisher(f"redis://{where}/0", stream="orders", timeout=SOON),
        lambda: NatsPublisher(f"nats://{where}", subject="orders.placed", timeout=SOON),
    ):
        published(searched, make)


def test_redis_that_lets_nobody_in(searched: Searched, redis_server: RedisServer) -> None:
    """R22, R28: a wrong password, and a stream that is none, are told without either secret."""
    url = f"redis://ada:{PASSWORD}@127.0.0.1:{redis_server.port}/0"
    published(searched, lambda: RedisStreamsPublisher(url, stream="orders", timeout=SOON))
    with redis_server.client() as client:
        client.set("no-stream", BODY)
    published(searched, lambda: RedisStreamsPublisher(redis_server.url, stream="no-stream"))


def test_nats_that_has_no_stream(searched: Searched, nats_server: NatsServer) -> None:
    """R22, R28: what no stream takes, and a subject that is none, are refused without the message."""
    published(searched, lambda: NatsPublisher(nats_server.url, subject="nobodys.orders"))
    published(searched, lambda: NatsPublisher(nats_server.url, subject="no subject"))


@pytest.mark.parametrize("status", [401, 422, 500, 0])
def test_webhooks_that_fail(searched: Searched, status: int) -> None:
    """R22, R28: what a receiver answers, which may repeat what it got, is in no error; nor is what authenticates."""
    act = answer(status, body=BODY.encode()) if status else reset_after_commit
    with serving(act) as server:
        where = f"{server.origin.replace('://', f'://ada:{PASSWORD}@')}/{planted('path')}?code={planted('code')}"
        headers = {"x-token": planted("token")}
        published(searched, lambda: WebhookPublisher(where, secrets=SIGNING, headers=headers))
        for _ in range(5):
            searched.saw("nothing", "")
