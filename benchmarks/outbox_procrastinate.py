"""procrastinate as an outbox: a job is deferred on the connection whose transaction has the effect.

As its documentation has it, `configure(connection=...)`. Each job has the aggregate for its lock, so that those of one
aggregate run one after another, which is what twicesafe's messages promise. The tables' schema is its own.
"""

from __future__ import annotations

from typing import Any

import procrastinate

APP = procrastinate.App(connector=procrastinate.PsycopgConnector())
BLOCKING = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())


@APP.task(name="order.placed")
async def placed(order: dict[str, Any]) -> None:
    """Never run here."""


@BLOCKING.task(name="order.placed")
def placed_blocking(order: dict[str, Any]) -> None:
    """Never run here."""


async def add(connection: Any, name: str, data: dict[str, Any]) -> None:
    """In the transaction of this connection."""
    await placed.configure(lock=name, connection=connection).defer_async(order=data)


def add_blocking(connection: Any, name: str, data: dict[str, Any]) -> None:
    """The same, in blocking calls."""
    placed_blocking.configure(lock=name, connection=connection).defer(order=data)


def apply_schema(url: str) -> None:
    """Its tables, functions and triggers."""
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
    with app.open():
        app.schema_manager.apply_schema()
