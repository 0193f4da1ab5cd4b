"""The three phases of benchmarks.phases as three jobs of procrastinate, in the same process and on the same server.

Each job writes its effect and defers the next in one transaction, on a connection that both have, as its documentation
has it. What is different: the job is marked as done afterwards, so one whose process dies in between does its effect
again, and nobody waits for an answer. All operations are deferred, one by one and so many at a time, while a worker
takes them up; the last effect of all ends the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import procrastinate
from psycopg_pool import AsyncConnectionPool

from benchmarks.load import throughput

EFFECT = "INSERT INTO effects (operation, step) VALUES (%s, %s)"


@asynccontextmanager
async def working(url: str, tasks: int) -> AsyncIterator[Callable[[int], Awaitable[float]]]:
    """Seconds for one of n operations."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=tasks, max_size=tasks))
    pool: Any = AsyncConnectionPool(url, min_size=tasks, max_size=tasks, open=False)
    missing, ended = 0, asyncio.Event()

    @app.task(name="three")
    async def phase(name: str, step: int) -> None:
        nonlocal missing
        async with pool.connection() as connection:
            await connection.execute(EFFECT, (name, f"step {step}"))
            if step < 2:
                await phase.configure(connection=connection).defer_async(name=name, step=step + 1)
        if step == 2:
            missing -= 1
            if not missing:
                ended.set()

    async def begin() -> None:
        await phase.defer_async(name=str(uuid4()), step=0)

    async def run(n: int) -> float:
        nonlocal missing
        missing, began = n, time.perf_counter()
        ended.clear()
        await throughput(begin, tasks)(n)
        await ended.wait()
        return (time.perf_counter() - began) / n

    async with app.open_async(), pool:
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(app.run_worker_async(concurrency=tasks, install_signal_handlers=False))
        try:
            yield run
        finally:
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker
