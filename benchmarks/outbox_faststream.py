"""faststream-outbox, for benchmarks.outbox."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from benchmarks.measure import Subject

QUEUE = "orders"
FLUSH = 100
"""Of its own benchmark."""


async def subjects(url: str, pool: Any, receiver: Any, data: bytes) -> list[Subject]:
    """It, with several workers and with one. None where it is not installed."""
    if find_spec("faststream_outbox") is None:
        return []
    from faststream_outbox import make_outbox_table, outbox_autovacuum_ddl
    from sqlalchemy import MetaData
    from sqlalchemy.ext.asyncio import create_async_engine

    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="outbox")
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=20)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.exec_driver_sql(outbox_autovacuum_ddl("outbox"))
    await engine.dispose()

    def subject(name: str, workers: int) -> Subject:
        return Subject(name, relaying(url, table, pool, receiver, data, workers))

    return [subject("faststream-outbox", 4), subject("faststream-outbox, 1 worker", 1)]


def relaying(
    url: str, table: Any, pool: Any, receiver: Any, data: bytes, workers: int
) -> Callable[[int], Awaitable[float]]:
    """What waits, relayed by a broker of its own."""
    from faststream_outbox import OutboxBroker
    from sqlalchemy.ext.asyncio import create_async_engine

    async def run(n: int) -> float:
        async with pool.acquire() as connection:
            await connection.execute("TRUNCATE outbox")
            records = [(QUEUE, data, json.dumps({"correlation_id": str(uuid4())})) for _ in range(n)]
            await connection.copy_records_to_table("outbox", columns=("queue", "payload", "headers"), records=records)
            await connection.execute("VACUUM ANALYZE outbox")
        engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=workers + 2)
        broker = OutboxBroker(engine, outbox_table=table, logger=logging.getLogger("quiet"))
        done = asyncio.Event()

        @broker.subscriber(QUEUE, max_workers=workers, fetch_batch_size=5 * FLUSH, terminal_flush_batch_size=FLUSH)
        async def relay(body: dict[str, Any]) -> None:
            await receiver("", body)
            if receiver.count == n:
                done.set()

        receiver.count = 0
        began = time.perf_counter()
        await broker.start()
        await done.wait()
        while await pool.fetchval("SELECT EXISTS (SELECT FROM outbox)"):  # noqa: ASYNC110 - another's deletion
            await asyncio.sleep(0.001)
        took = time.perf_counter() - began
        await broker.stop()
        await engine.dispose()
        assert receiver.count == n
        return n / took

    return run
