"""A process of benchmarks.recovery: `python -m benchmarks.recovery_dbos strand|recover URL NUMBER COUNT`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import asyncpg
from dbos import DBOS, AsyncSQLAlchemyDatasource, DBOSConfig, SetWorkflowID
from sqlalchemy import text

from benchmarks.recovery import DONE, ready, say

CONNECTIONS = 16
AT_ONCE = 100
"""Workflows that are begun together while they are stranded."""
EFFECT = text("INSERT INTO effects (operation, step) VALUES (:operation, :step)")


def defined(source: Any, stranded: asyncio.Semaphore | None) -> Any:
    """The workflow. Where `stranded` is given it stops for ever after its first step."""

    @source.transaction(name="effect", isolation_level="READ COMMITTED")
    async def effect(name: str, step: int) -> int:
        await source.sql_session().execute(EFFECT, {"operation": name, "step": step})
        return step

    @DBOS.workflow(name="three")
    async def three(name: str) -> int:
        total = await effect(name, 0)
        if stranded is not None:
            stranded.release()
            await asyncio.get_running_loop().create_future()
        total += await effect(name, 1)
        total += await effect(name, 2)
        return int(total)

    return three


async def strand(three: Any, stranded: asyncio.Semaphore, number: int, count: int) -> None:
    """Begin so many workflows, and never end them."""
    for at in range(0, count, AT_ONCE):
        some = range(at, min(at + AT_ONCE, count))
        for one in some:
            with SetWorkflowID(f"{number}-{one}"):
                await DBOS.start_workflow_async(three, f"{number}-{one}")
        for _ in some:
            await stranded.acquire()
    say("stranded")
    await asyncio.get_running_loop().create_future()


async def recover(url: str, count: int) -> None:
    """The launch has begun it; nothing is to be done but to wait for its end."""
    connection = await asyncpg.connect(url)
    left = "SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'"
    while await connection.fetchval(DONE) < count or await connection.fetchval(left):  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.25)
    say("done")
    await asyncio.get_running_loop().create_future()


async def main(role: str, url: str, number: int, count: int) -> None:
    """The process."""
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "sys_db_pool_size": CONNECTIONS,
        "executor_id": f"worker-{number}",
        "application_version": "1",
        "log_level": "ERROR",
    }
    DBOS(config=config)
    engine = {"pool_size": CONNECTIONS, "max_overflow": 0}
    source = await AsyncSQLAlchemyDatasource.create(url, engine_kwargs=engine)
    stranded = asyncio.Semaphore(0) if role == "strand" else None
    three = defined(source, stranded)
    ready()
    DBOS.launch()
    if stranded is not None:
        await strand(three, stranded, number, count)
    else:
        await recover(url, count)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
