"""The two DynamoDB stores, on a table of their own in the tests' server, with one of effects beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import boto3
import pytest
from aiobotocore.session import get_session
from botocore.config import Config

from tests.servers.dynamodb import REGION, DynamodbServer
from tests.stores.postgresql_kinds import as_async
from twicesafe.stores.contract import AsyncStore, AsyncTransaction
from twicesafe.stores.dynamodb import DynamodbStore
from twicesafe.stores.dynamodb_async import AsyncDynamodbStore
from twicesafe.testing import ManualClock, StoreUnderTest
from twicesafe.testing.threads import TransactionInThread

KINDS: dict[str, Callable[..., Any]] = {"dynamodb": DynamodbStore, "dynamodb, async": AsyncDynamodbStore}
SESSIONS: dict[str, Any] = {"dynamodb": boto3.session.Session(), "dynamodb, async": get_session()}
"""One of each for all: every new one reads two megabytes of descriptions."""
CONFIG = Config(retries={"total_max_attempts": 1}, read_timeout=60)
KIND = pytest.mark.parametrize("kind", KINDS)

RIVALS, KEYS = 3, 12
"""For the contract's checks: the emulator answers some hundred requests a second."""

PATIENT = timedelta(seconds=60)
"""The emulator shares the machine with everything else."""


@dataclass
class Place:
    """Two tables of their own, and a client to look at them from outside."""

    server: DynamodbServer
    client: Any
    kind: str
    table: str
    effects_table: str

    def store(self, kind: str | None = None, **options: Any) -> Any:
        """A store of the kind under test."""
        kind = kind or self.kind
        session = SESSIONS[kind]
        options = {
            "region": REGION, "endpoint": self.server.endpoint, "session": session, "timeout": PATIENT, **options
        }  # fmt: skip
        return KINDS[kind](self.table, **options)

    def write(self, connection: Any, name: str = "key") -> None:
        """An item of the application's own, in a transaction."""
        connection.put_item(TableName=self.effects_table, Item={"id": {"S": uuid4().hex}, "name": {"S": name}})

    def effects(self, name: str | None = "key") -> int:
        """How many of them are committed, by any name where None is given."""
        named = (
            {}
            if name is None
            else {
                "FilterExpression": "#n = :n",
                "ExpressionAttributeNames": {"#n": "name"},
                "ExpressionAttributeValues": {":n": {"S": name}},
            }
        )
        return int(
            self.client.scan(TableName=self.effects_table, ConsistentRead=True, Select="COUNT", **named)["Count"]
        )

    def item(self, digest: bytes) -> dict[str, Any] | None:
        """The item as it lies there."""
        found: dict[str, Any] = self.client.get_item(TableName=self.table, Key={"digest": {"B": digest}})
        return found.get("Item")

    def subject(self, clock: ManualClock) -> StoreUnderTest:
        """What the contract's checks want to know."""
        store = self.store(clock=clock)
        return StoreUnderTest(
            store=store,
            write_effect=self.write_later if "async" in self.kind else self.write,
            count_effects=self.effects,
            elsewhere=lambda: self.store(clock=clock),
            before_statement=lambda call: interpose(store, call),
            close=self.client.close,
        )

    async def write_later(self, connection: Any, name: str) -> None:
        """The same, awaited."""
        self.write(connection, name)


_names = count(1)


def new_place(server: DynamodbServer, kind: str) -> Place:
    """A new one."""
    client = SESSIONS["dynamodb"].client("dynamodb", region_name=REGION, endpoint_url=server.endpoint, config=CONFIG)
    effects = f"effects{next(_names)}"
    client.create_table(
        TableName=effects,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return Place(server, client, kind, server.new_table(), effects)


def interpose(store: Any, call: Callable[[int], Any]) -> None:
    """Have `call(n)` called before the n-th request from now on."""
    numbers = count()
    perform = type(store).perform

    async def async_perform(step: Any) -> Any:
        called = call(next(numbers))
        if called is not None:
            await called
        return await perform(store, step)

    def sync_perform(step: Any) -> Any:
        call(next(numbers))
        return perform(store, step)

    store.perform = async_perform if asyncio.iscoroutinefunction(perform) else sync_perform


@asynccontextmanager
async def opened(place: Place, **options: Any) -> AsyncIterator[AsyncStore]:
    """A store with its table, closed in the end."""
    store = as_async(place.store(**options))
    try:
        await store.apply_schema()
        yield store
    finally:
        await store.aclose()


async def write(place: Place, transaction: AsyncTransaction, **conditions: Any) -> None:
    """An effect, on a condition where one is given."""
    connection = transaction.connection
    if isinstance(transaction, TransactionInThread):
        await transaction.run(place.write, connection)
    else:
        place.write(connection)
    if conditions:
        connection.check_item(TableName=place.effects_table, Key={"id": {"S": "stock"}}, **conditions)
