"""NATS JetStream between relays and consumer: a private server, and a stream with a durable consumer for each lane.

A consumer of JetStream's keeps an order over redeliveries only where it lets nothing out before what it let out last is
acknowledged: `max_ack_pending` 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

from twicesafe.core.arrived import arrived
from twicesafe.errors import StoreUnavailableError
from twicesafe.outbox import Publisher
from twicesafe.publishers.nats import NatsPublisher
from twicesafe.storm.fleet import Fleet
from twicesafe.storm.messages.books import ConsumerBooks
from twicesafe.storm.messages.way import AGAIN, LANES, lane_of
from twicesafe.storm.nats import PrivateNats

_STREAM: Final = "storm"
_ACK_WAIT: Final = 1.5
"""Seconds until a message comes again whose acknowledgement was lost."""
_FETCH: Final = 1.0
"""Seconds that one asks for a message."""


class Nats:
    """A Way."""

    def __init__(self, server: PrivateNats) -> None:
        self.told = {"to": "nats", "url": server.url}
        self._server = server

    async def restart(self, consumer: Fleet, *, crash: bool) -> None:  # noqa: ARG002 - it has to cope
        """See Way.restart."""
        await asyncio.to_thread(self._server.restart, crash=crash)


@asynccontextmanager
async def opened() -> AsyncIterator[Nats]:
    """A server of its own, with stream and consumers."""
    with PrivateNats() as server:
        client = await nats.connect(server.url)
        jetstream = client.jetstream()
        await jetstream.add_stream(StreamConfig(name=_STREAM, subjects=[f"{_STREAM}.*"]))
        for lane in range(LANES):
            await jetstream.add_consumer(
                _STREAM,
                ConsumerConfig(
                    durable_name=_durable(lane), filter_subject=f"{_STREAM}.{lane}", ack_policy=AckPolicy.EXPLICIT,
                    ack_wait=_ACK_WAIT, max_ack_pending=1,
                ),
            )  # fmt: skip
        await client.close()
        yield Nats(server)


def publisher(told: dict[str, Any]) -> Publisher:
    """To the stream, by the aggregate's lane."""
    return NatsPublisher(told["url"], stream=_STREAM, subject=lambda message: f"{_STREAM}.{lane_of(message)}")


async def consume(told: dict[str, Any], books: ConsumerBooks) -> None:
    """Handle what comes in all lanes until cancelled."""
    client = await nats.connect(told["url"], max_reconnect_attempts=-1, reconnect_time_wait=AGAIN)
    try:
        async with asyncio.TaskGroup() as lanes:
            for lane in range(LANES):
                lanes.create_task(_lane(client, lane, books))
    finally:
        await client.close()


async def _lane(client: Client, lane: int, books: ConsumerBooks) -> None:
    jetstream = client.jetstream()
    subscription = await jetstream.pull_subscribe_bind(durable=_durable(lane), stream=_STREAM)
    while True:
        try:
            (one,) = await subscription.fetch(1, timeout=_FETCH)
            await books.take(arrived(one.headers or {}, one.data))
            await one.ack()
        except TimeoutError:
            # There was none.
            pass
        except (Error, StoreUnavailableError, OSError):
            # What is not acknowledged comes again, and nothing before it.
            await asyncio.sleep(AGAIN)


def _durable(lane: int) -> str:
    return f"{_STREAM}-{lane}"
