"""A record that cannot be read: told, left as it is, and in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.servers.redis import RedisServer
from tests.stores import dynamodb_place as dynamodb
from tests.stores import mysql_kinds, postgresql_kinds, redis_kinds
from tests.stores.claims import LEASE, digest_of
from tests.stores.postgresql_kinds import as_async, won
from tests.stores.sqlite_file import File
from twicesafe.core.record import Effects, RecordState
from twicesafe.errors import StoreError
from twicesafe.testing import ManualClock

KEYS = ("before", "damaged", "between", "after")
BROKEN = "UPDATE twicesafe_records SET status = 200, headers = {} WHERE digest = {}"
"""Header lines that nobody packed."""


async def the_others_are_ended(store: Any, clock: ManualClock, damage: Callable[[], object]) -> None:
    """Damage one of several stale claims, and sweep."""
    resumes, store = hasattr(store, "outstanding"), as_async(store)
    await store.apply_schema()
    for key in KEYS:
        await won(store, key, effects=Effects.OPAQUE)
    damage()
    clock.advance(timedelta(microseconds=LEASE))
    others = [digest_of(key) for key in KEYS if key != "damaged"]
    told: list[str] = []
    # Where others have records as well a sweep may take several calls.
    while not told or {(await store.read(digest)).record.state for digest in others} != {RecordState.UNKNOWN}:
        try:
            await store.settle_stale()
        except StoreError as error:
            told.append(str(error))
    assert all("damaged" in text for text in told)
    with pytest.raises(StoreError, match="damaged"):
        await store.read(digest_of("damaged"))
    if resumes:
        found = await store.outstanding()
        assert {record.digest for record in found.records} == set(others)
    await store.aclose()


def test_sqlite(file: File) -> None:
    """R27, K: a sweep ends the stale claims around a record that cannot be read, which is told and left alone."""
    broken = BROKEN.format("x'01'", "?")
    damaged = digest_of("damaged")
    asyncio.run(the_others_are_ended(file.store(), file.clock, lambda: file.plain.execute(broken, (damaged,))))


@pytest.mark.parametrize("kind", ["psycopg"])
def test_postgresql(place: postgresql_kinds.Place, kind: str) -> None:
    """R27, K: the same on PostgreSQL."""
    clock = ManualClock()
    clock.watch(place.set_clock)
    broken = BROKEN.format("'\\x01'", "%s")
    damaged = digest_of("damaged")
    store = place.store(now_sql=postgresql_kinds.MANUAL_CLOCK)
    asyncio.run(the_others_are_ended(store, clock, lambda: place.admin.execute(broken, (damaged,))))


@pytest.mark.parametrize("kind", ["pymysql"])
def test_mysql(mysql_place: mysql_kinds.Place, kind: str) -> None:
    """R27, K: the same on MySQL."""
    clock = ManualClock()
    clock.watch(mysql_place.set_clock)
    broken = BROKEN.format("x'01'", f"x'{digest_of('damaged').hex()}'")

    def damage() -> None:
        with mysql_place.admin.cursor() as cursor:
            cursor.execute(broken)

    store = mysql_place.store(now_sql=mysql_kinds.MANUAL_CLOCK)
    asyncio.run(the_others_are_ended(store, clock, damage))


@pytest.mark.parametrize("kind", redis_kinds.KINDS)
def test_redis(redis_server: RedisServer, kind: str) -> None:
    """R27, K: the same on Redis, whose sweep goes through it as it lies."""
    clock, prefix = ManualClock(), redis_kinds.new_prefix()

    def damage() -> None:
        with redis_server.client() as client:
            # Effects that no release has.
            client.setrange(f"{prefix}{{{digest_of('damaged').hex()}}}", 2, "?")

    store = redis_kinds.KINDS[kind](redis_server.url, prefix=prefix, clock=clock)
    asyncio.run(the_others_are_ended(store, clock, damage))


@pytest.mark.parametrize("kind", ["dynamodb"])
def test_dynamodb(dynamodb_place: dynamodb.Place, kind: str) -> None:
    """R27, K: the same on DynamoDB."""
    clock = ManualClock()

    def damage() -> None:
        dynamodb_place.client.update_item(
            TableName=dynamodb_place.table,
            Key={"digest": {"B": digest_of("damaged")}},
            UpdateExpression="REMOVE #scope",
            ExpressionAttributeNames={"#scope": "scope"},
        )

    asyncio.run(the_others_are_ended(dynamodb_place.store(clock=clock), clock, damage))
