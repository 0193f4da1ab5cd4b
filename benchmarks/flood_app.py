"""The server of benchmarks.flood, for uvicorn: BENCH_STORE at BENCH_URL, with limits where BENCH_LIMITED is set.

The caller stands in a header, where a server's authentication would say who it is. GET tells how the process is.
"""

from __future__ import annotations

import gc
import json
import os
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.flood_limits import LIMITS
from twicesafe import Limits, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore

CONNECTIONS: Final = 10
COUNT: Final = "SELECT count(*) FROM twicesafe_records"
ANSWER: Final = b'{"id": "ch_1"}'


async def answer(send: Any, status: int, body: bytes) -> None:
    """Of everybody."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def count() -> int:
    """How many records there are."""
    if hasattr(STORE, "__len__"):
        return len(STORE)
    async with STORE.transaction() as transaction:
        await transaction.begin()
        connection = transaction.connection
        if isinstance(STORE, AsyncSqliteStore):
            return int((await connection.execute_fetchall(COUNT))[0][0])
        return int(await connection.fetchval(COUNT))


def resident_mb() -> float:
    """How much memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


async def service(scope: Any, receive: Any, send: Any) -> None:
    """A service with little to do."""
    if scope["type"] == "lifespan":
        await receive()
        if not isinstance(STORE, AsyncMemoryStore):
            await STORE.apply_schema()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["method"] == "GET":
        gc.collect()
        told = {
            "records": await count(),
            "callers_remembered": sum(len(one) for one in app._shared.admissions.values()),
            "resident_mb": resident_mb(),
            "seconds": time.process_time(),
        }
        await answer(send, 200, json.dumps(told).encode())
        return
    await receive()
    await answer(send, 201, ANSWER)


def opened() -> Any:
    """The store."""
    kind, url = os.environ["BENCH_STORE"], os.environ["BENCH_URL"]
    if kind == "memory":
        return AsyncMemoryStore()
    return AsyncSqliteStore(Path(url)) if kind == "sqlite" else AsyncpgStore(url, pool_size=CONNECTIONS)


def caller(scope: Any) -> str:
    """Who is calling."""
    return next(value for name, value in scope["headers"] if name == b"x-caller").decode("ascii")


STORE: Any = opened()
app: Any = IdempotencyMiddleware(
    service, STORE, scope=caller, policy=Policy(limits=LIMITS if os.environ["BENCH_LIMITED"] else Limits()),
    observer=lambda _: None,
)  # fmt: skip
