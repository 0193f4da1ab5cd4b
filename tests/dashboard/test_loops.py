"""A dashboard and the event loops that serve it. In a file without a browser, whose driver keeps a loop running."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2

from twicesafe.dashboard import Dashboard
from twicesafe.errors import ConfigurationError
from twicesafe.stores.sqlite import SqliteStore


def test_one_dashboard_is_of_one_loop_at_a_time(tmp_path: Path) -> None:
    """R26: another loop beside the one that serves it is told to have its own; one after it is served."""

    async def asked(dashboard: Any) -> int:
        transport = httpx2.ASGITransport(dashboard)
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
            return (await client.get("/")).status_code

    with closing(SqliteStore(tmp_path / "shop.db")) as store:
        store.apply_schema()
        dashboard = Dashboard(store, who=lambda request: "ann")
        assert [asyncio.run(asked(dashboard)) for _ in range(2)] == [200, 200]
        refused: list[BaseException] = []

        def beside() -> None:
            try:
                asyncio.run(asked(dashboard))
            except ConfigurationError as error:
                refused.append(error)

        async def both() -> int:
            await asked(dashboard)
            await asyncio.to_thread(beside)
            return await asked(dashboard)

        assert asyncio.run(both()) == 200
        assert len(refused) == 1 and "another event loop" in str(refused[0])
