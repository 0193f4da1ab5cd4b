"""A store, a receiver that can be told to fail, and relays between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import Database, opened
from tests.messages.test_handlers import mysql_url
from twicesafe.core.delivery import DeliveryPolicy
from twicesafe.core.message import Message
from twicesafe.observe import Event
from twicesafe.outbox.relay import Relay
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.callers_asyncio import arun
from twicesafe.stores.sqlite import AsyncSqliteStore

STORES: dict[str, tuple[str, Callable[[Database], Any]]] = {
    "sqlite": ("sqlite3", lambda database: AsyncSqliteStore(database.where)),
    "postgresql": ("psycopg", lambda database: AsyncpgStore(database.where)),
    "mysql": ("PyMySQL", lambda database: AsyncmyStore(mysql_url(database))),
}
EACH = pytest.mark.parametrize("dialect", STORES)
INSTANT = timedelta(microseconds=1)
OFTEN = DeliveryPolicy(attempts=2, first_delay=INSTANT, longest_delay=INSTANT)


class Receiver:
    """Takes messages, but for those that it was told to fail on."""

    def __init__(self) -> None:
        self.arrived: list[Message] = []
        self.failing: dict[str, Exception] = {}

    async def publish(self, message: Message) -> None:
        await asyncio.sleep(0)
        if message.aggregateid in self.failing:
            raise self.failing[message.aggregateid]
        self.arrived.append(message)

    def ids(self, *aggregates: str) -> list[str]:
        """What arrived for these, in its order."""
        return [message.id for message in self.arrived if message.aggregateid in aggregates]


class Many(Receiver):
    """The same, several at a time."""

    async def publish_many(self, messages: list[Message]) -> list[BaseException | None]:
        assert len({message.aggregateid for message in messages}) == len(messages)
        outcomes: list[BaseException | None] = list(
            await asyncio.gather(*map(self.publish, messages), return_exceptions=True)
        )
        return outcomes


class Rig:
    """A store, a receiver, and relays between them."""

    def __init__(self, database: Database, store: Any, receiver: Receiver) -> None:
        self.database = database
        self.store = store
        self.receiver = receiver
        self.events: list[Event] = []
        self.relays: list[Relay] = []

    def relay(self, **options: Any) -> Relay:
        """A relay more."""
        made = Relay(self.store, self.receiver, observer=self.events.append, **options)
        self.relays.append(made)
        return made

    async def add(self, *aggregates: str) -> list[str]:
        """Commit a message for each, in this order."""
        async with opened(self.database, STORES[self.database.dialect][0]) as one:
            await one.begin()
            added = [await one.add(aggregate) for aggregate in aggregates]
            await one.commit()
        return added

    async def run(self, steps: Callable[[Any], Any]) -> Any:
        """Steps in a transaction of the store's."""
        async with self.store.transaction() as transaction:
            await transaction.begin()
            result = await arun(transaction.connection, steps)
            await transaction.commit()
        return result

    def states(self, aggregate: str) -> list[str]:
        """What is stored of an aggregate's messages."""
        rows = self.database.ask("SELECT state FROM twicesafe_outbox WHERE aggregateid = %s ORDER BY seq", aggregate)
        return [row[0] for row in rows]


@asynccontextmanager
async def rigged(databases: Databases, dialect: str, receiver: Receiver | None = None) -> AsyncIterator[Rig]:
    """A rig on a database that holds nothing else that is pending."""
    database = databases(dialect)
    database.ask("DELETE FROM twicesafe_outbox")
    store = STORES[dialect][1](database)
    rig = Rig(database, store, receiver or Receiver())
    try:
        yield rig
        for relay in rig.relays:
            await relay.aclose()
    finally:
        await store.aclose()


def trial(run: Callable[[], Awaitable[None]]) -> None:
    """Run it."""
    asyncio.run(run())  # type: ignore[arg-type]
