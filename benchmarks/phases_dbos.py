"""The three phases of benchmarks.phases as a workflow of dbos, in the same process and on the same server.

As its documentation has it: an asynchronous workflow whose steps are transactions of an asynchronous datasource, READ
COMMITTED, so that the effect and what tells that it was taken are one, as in a phase.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from dbos import DBOS, AsyncSQLAlchemyDatasource, DBOSConfig, SetWorkflowID
from sqlalchemy import text

EFFECT = text("INSERT INTO effects (operation, step) VALUES (:operation, :step)")


@asynccontextmanager
async def launched(url: str, connections: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """One operation."""
    config: DBOSConfig = {
        "name": "bench", "system_database_url": url, "sys_db_pool_size": connections, "log_level": "ERROR",
        "application_version": "1",
    }  # fmt: skip
    DBOS(config=config)
    pool = {"pool_size": connections, "max_overflow": 0}
    source: Any = await AsyncSQLAlchemyDatasource.create(url, engine_kwargs=pool)

    @source.transaction(name="effect", isolation_level="READ COMMITTED")
    async def effect(name: str, step: int) -> int:
        await source.sql_session().execute(EFFECT, {"operation": name, "step": f"step {step}"})
        return step

    @DBOS.workflow(name="three")
    async def three(name: str) -> int:
        for step in range(3):
            await effect(name, step)
        return 3

    async def once() -> None:
        name = str(uuid4())
        with SetWorkflowID(name):
            assert await three(name) == 3

    DBOS.launch()
    try:
        yield once
    finally:
        DBOS.destroy()
