"""Webhooks between relays and consumer: nothing stands there, and it is the consumer's server that is restarted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from twicesafe.demo.serving import Embedded
from twicesafe.incoming import ASGIScope, Receive
from twicesafe.keyed import Send
from twicesafe.outbox import Publisher
from twicesafe.publishers.webhooks import WebhookPublisher
from twicesafe.receiving import AsyncWebhookReceiver
from twicesafe.storm.clients import plain_client
from twicesafe.storm.company import reserved_port
from twicesafe.storm.fleet import Fleet
from twicesafe.storm.messages.books import SOURCE, ConsumerBooks

_SECRET: Final = "whsec_c3Rvcm0gc3Rvcm0gc3Rvcm0gc3Rvcm0="  # noqa: S105 - both ends are the storm's own
_BACKLOG: Final = 1024

_DELIVERY: Final[ContextVar[str]] = ContextVar("twicesafe.storm.delivery")
"""The id of the message that a request brings."""


class Webhooks:
    """A Way."""

    def __init__(self, port: int) -> None:
        self.told = {"to": "webhooks", "port": port}

    async def restart(self, consumer: Fleet, *, crash: bool) -> None:
        """See Way.restart."""
        if crash:
            await consumer.kill(0)
        else:
            await consumer.down()
            consumer.up()


@asynccontextmanager
async def opened() -> AsyncIterator[Webhooks]:
    """A port for the consumer, the same for all its lives."""
    with reserved_port() as port:
        yield Webhooks(port)


def publisher(told: dict[str, Any]) -> Publisher:
    """To the consumer's port."""
    return WebhookPublisher(f"http://127.0.0.1:{told['port']}/", secrets=_SECRET, client=plain_client())


async def consume(told: dict[str, Any], books: ConsumerBooks) -> None:
    """Serve until cancelled."""

    @asynccontextmanager
    async def begin() -> AsyncIterator[Any]:
        async with books.store.transaction() as transaction:
            await transaction.begin()
            await books.delivered(transaction.connection, _DELIVERY.get())
            yield transaction.connection
            await transaction.commit()

    receiver = AsyncWebhookReceiver(
        books.inbox, secrets=_SECRET, source=SOURCE, begin=begin, handle=books.effect
    )  # fmt: skip

    async def application(scope: ASGIScope, receive: Receive, send: Send) -> None:
        _DELIVERY.set(dict(scope["headers"])[b"webhook-id"].decode())
        await receiver(scope, receive, send)

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", told["port"]))
        listener.listen(_BACKLOG)
        server = Embedded(application)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.should_exit = True
            await serving
            raise
