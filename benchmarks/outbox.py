"""The outbox on PostgreSQL: what a message costs whoever adds it, and how fast relays deliver what waits.

`relay`: WAITING messages of AGGREGATES aggregates wait; the figure is messages per second until all are published and
marked. All subjects publish by the same function of an id and bytes, from one process, by asyncpg, on one private
server with fsync on. `floor` is the loop that people write: rows FOR UPDATE SKIP LOCKED, published one after another,
deleted, committed, in batches as large as ours. It keeps nothing, and orders nothing as soon as there are two of it.

faststream-outbox is set up as its page on performance has it for throughput (`faststream-outbox`: deletions flushed in
batches of 100, its autovacuum settings, 4 workers), and with one worker, which keeps messages in order as long as there
is one process (`faststream-outbox, 1 worker`). Its handler is that of its first
page, which takes a dict.

`add` is measured in benchmarks.outbox_adding.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any
from uuid import uuid4

import asyncpg

from benchmarks import outbox_adding, outbox_faststream
from benchmarks.measure import Row, Subject, interleaved, rows
from twicesafe.core.message import Message
from twicesafe.outbox.relay import Relay
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.storm.postgresql import PrivatePostgreSQL

ROUNDS = 5
WAITING = 5000
AGGREGATES = 500
BATCH = 500
DATA = json.dumps({"order": "o-17", "cents": 4200, "currency": "EUR", "lines": [{"sku": "a-1", "count": 2}]}).encode()

BY_HAND = """
CREATE TABLE by_hand (
    id bigserial PRIMARY KEY, message text NOT NULL, aggregateid text NOT NULL, type text NOT NULL,
    payload bytea NOT NULL, created_at timestamptz NOT NULL DEFAULT now()
)
"""
TAKE = "SELECT id, message, payload FROM by_hand ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED"
DONE = "DELETE FROM by_hand WHERE id = ANY($1::bigint[])"


class Receiver:
    """Counts what arrives."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, name: str, data: object) -> None:
        """Acknowledge it."""
        self.count += 1


async def filled(connection: Any, table: str, columns: tuple[str, ...], records: list[tuple[Any, ...]]) -> None:
    """A table that holds these rows only, as a database that has run for a while would have it."""
    await connection.execute(f"TRUNCATE {table}")
    await connection.copy_records_to_table(table, columns=columns, records=records)
    await connection.execute(f"VACUUM ANALYZE {table}")


def by_hand(pool: Any, receiver: Receiver) -> Callable[[int], Awaitable[float]]:
    """The loop that people write."""

    async def run(n: int) -> float:
        async with pool.acquire() as connection:
            records = [(str(uuid4()), f"o-{number % AGGREGATES}", "order.placed", DATA) for number in range(n)]
            await filled(connection, "by_hand", ("message", "aggregateid", "type", "payload"), records)
            receiver.count, began = 0, time.perf_counter()
            while True:
                async with connection.transaction():
                    taken = await connection.fetch(TAKE, BATCH)
                    for row in taken:
                        await receiver(row["message"], row["payload"])
                    await connection.execute(DONE, [row["id"] for row in taken])
                if len(taken) < BATCH:
                    break
            took = time.perf_counter() - began
        assert receiver.count == n
        return n / took

    return run


def by_twicesafe(pool: Any, store: AsyncpgStore, receiver: Receiver) -> Callable[[int], Awaitable[float]]:
    """One relay, as it comes."""

    async def publish(message: Message) -> None:
        await receiver(message.id, message.data)

    columns = (
        "id", "aggregatetype", "aggregateid", "type", "payload", "source", "content_type", "created_at", "aggregate",
        "shard",
    )  # fmt: skip

    def record(number: int) -> tuple[Any, ...]:
        name = f"o-{number % AGGREGATES}"
        digest = sha256(name.encode()).digest()
        aggregate = int.from_bytes(digest[:8], "big", signed=True)
        now = int(time.time() * 1e6)
        return (
            str(uuid4()), "order", name, "order.placed", DATA, "/shop", "application/json", now, aggregate,
            digest[-1] % 64,
        )  # fmt: skip

    async def run(n: int) -> float:
        async with pool.acquire() as connection:
            await filled(connection, "twicesafe_outbox", columns, [record(number) for number in range(n)])
        relay = Relay(store, publish, batch=BATCH)
        receiver.count, began = 0, time.perf_counter()
        while (await relay.run_once()).more:
            pass
        took = time.perf_counter() - began
        await relay.aclose()
        assert receiver.count == n
        assert not await pool.fetchval("SELECT count(*) FROM twicesafe_outbox WHERE state <> 'delivered'")
        return n / took

    return run


async def relayed(url: str) -> list[Row]:
    """How fast what waits is delivered."""
    store, receiver = AsyncpgStore(url), Receiver()
    pool = await asyncpg.create_pool(url, min_size=2, max_size=4)
    try:
        await store.apply_schema()
        await pool.execute(BY_HAND)
        subjects = [
            Subject("floor", by_hand(pool, receiver)),
            Subject("twicesafe", by_twicesafe(pool, store, receiver)),
        ]
        subjects += await outbox_faststream.subjects(url, pool, receiver, DATA)
        await interleaved(subjects, rounds=ROUNDS, times=WAITING, patience=3)
    finally:
        await pool.close()
        await store.aclose()
    return rows("relay, in-process publisher", "per s", subjects, lambda rate: rate)


def run() -> list[Row]:
    """The benchmark."""
    with PrivatePostgreSQL({"max_connections": "100"}) as server:
        return [*asyncio.run(relayed(server.url)), *outbox_adding.run(server.url)]
