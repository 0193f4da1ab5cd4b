"""Throw-away places in DynamoDB: two tables, one for records and one for effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from twicesafe.checking.places import ASYNCIO, Opened, Place, interpose, new_name
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.urls import dynamodb_table
from twicesafe.testing import MakeStore, ManualClock, StoreUnderTest


@contextmanager
def in_a_table(url: str, opened: Opened, remarks: list[str]) -> Iterator[Place]:
    """See throw_away.throw_away."""
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    table, where = dynamodb_table(url)
    name = f"{table}_{new_name()}"
    parts = urlsplit(url)
    place = urlunsplit(parts._replace(path=f"/{name}"))
    try:
        client = boto3.session.Session().client(
            "dynamodb",
            region_name=where["region"],
            endpoint_url=where["endpoint"],
            config=Config(connect_timeout=10, retries={"mode": "standard", "total_max_attempts": 2}),
        )
        made = _make(client, name)
    except (BotoCoreError, ClientError, ValueError) as error:
        raise StoreUnavailableError(f"no table could be made in {parts.scheme}://{parts.netloc}: {error}") from error
    try:
        for one in made:
            client.get_waiter("table_exists").wait(TableName=one, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        records, effects = made
        makers = {way: _maker(client, records, effects, place, way, open_one) for way, open_one in opened.items()}
        yield Place(f"tables {records} and {effects}", makers, remarks)
    finally:
        for one in made:
            client.delete_table(TableName=one)
        client.close()


def _make(client: Any, name: str) -> list[str]:
    made: list[str] = []
    try:
        for table, key in ((name, "digest"), (f"{name}_effects", "id")):
            client.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "B"}],
                BillingMode="PAY_PER_REQUEST",
            )
            made.append(table)
    except BaseException:
        for table in made:
            client.delete_table(TableName=table)
        raise
    return made


def _maker(client: Any, records: str, effects: str, url: str, way: str, open_one: Callable[..., Any]) -> MakeStore:
    def write(connection: Any, name: str) -> None:
        connection.put_item(TableName=effects, Item={"id": {"B": uuid4().bytes}, "name": {"S": name}})

    async def write_later(connection: Any, name: str) -> None:
        write(connection, name)

    def written(name: str) -> int:
        return sum(1 for item in _items(client, effects) if item["name"]["S"] == name)

    def fresh(clock: ManualClock) -> StoreUnderTest:
        _empty(client, records, "digest")
        _empty(client, effects, "id")
        store = open_one(url, clock=clock)
        return StoreUnderTest(
            store=store,
            write_effect=write_later if way == ASYNCIO else write,
            count_effects=written,
            elsewhere=lambda: open_one(url, clock=clock),
            before_statement=lambda call: interpose(store, call),
        )

    return fresh


def _items(client: Any, table: str) -> Iterator[dict[str, Any]]:
    for page in client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        yield from page["Items"]


def _empty(client: Any, table: str, key: str) -> None:
    for item in list(_items(client, table)):
        client.delete_item(TableName=table, Key={key: item[key]})
