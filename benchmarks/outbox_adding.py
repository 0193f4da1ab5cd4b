"""What it costs to add a message to a transaction, beside the INSERT of the same columns by hand.

Both ways the transaction has an effect of one row, on one connection, one transaction after another. The floor gives
its message an id, writes its data as JSON, and says which aggregate it belongs to, as whoever reads it has to know;
it checks nothing, takes no lock, and so keeps no order. `procrastinate` defers a job; see outbox_procrastinate. `added`
is the message alone: many in one transaction, without the commit's write to the disk. `CPU` is the time of this process
and of the server's that has its connection, which other work on the machine hardly touches.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from uuid import uuid4

import asyncpg
import psycopg

from benchmarks import outbox_procrastinate
from benchmarks.measure import FEWEST, PACE, Row, row
from twicesafe.outbox import AsyncOutbox, Outbox

ROUNDS = 21
TRANSACTIONS = 20
MANY = 200
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
COLUMNS = (
    "id, aggregatetype, aggregateid, type, payload, source, subject, content_type, headers, created_at, aggregate, "
    "shard"
)
INSERT = f"INSERT INTO twicesafe_outbox ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, {NOW}, %s, %s)"
NUMBERED = f"INSERT INTO twicesafe_outbox ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, {NOW}, $10, $11)"
EFFECT = "INSERT INTO effects (account, cents) VALUES (7, 4200)"
NUMBERS = count(1)
ENCODE = json.JSONEncoder(separators=(",", ":")).encode
LINES = [{"sku": "a-1", "count": 2}]


def order() -> tuple[str, dict[str, Any]]:
    """An aggregate's id, and what is said of it."""
    name = f"o-{next(NUMBERS)}"
    return name, {"order": name, "cents": 4200, "currency": "EUR", "lines": LINES}


def values(name: str, data: object) -> tuple[Any, ...]:
    """By hand."""
    digest = sha256(f"order {name}".encode()).digest()
    aggregate = int.from_bytes(digest[:8], "big", signed=True)
    return (
        str(uuid4()), "order", name, "order.placed", ENCODE(data).encode(), "/shop", None, "application/json", None,
        aggregate, digest[-1] % 64,
    )  # fmt: skip


Add = Callable[[Any], Awaitable[None]]
BlockingAdd = Callable[[Any], None]
OUTBOX, ASYNC_OUTBOX = Outbox("/shop"), AsyncOutbox("/shop")


async def by_asyncpg(connection: Any) -> None:
    """By hand."""
    await connection.execute(NUMBERED, *values(*order()))


async def by_psycopg(connection: Any) -> None:
    """By hand."""
    await connection.execute(INSERT, values(*order()))


async def ours(connection: Any) -> None:
    """With twicesafe."""
    name, data = order()
    await ASYNC_OUTBOX.add(connection, "order.placed", ("order", name), data)


async def by_procrastinate(connection: Any) -> None:
    """A job."""
    await outbox_procrastinate.add(connection, *order())


def by_procrastinate_blocking(connection: Any) -> None:
    """A job."""
    outbox_procrastinate.add_blocking(connection, *order())


def by_psycopg_blocking(connection: Any) -> None:
    """By hand."""
    connection.execute(INSERT, values(*order()))


def ours_blocking(connection: Any) -> None:
    """With twicesafe."""
    name, data = order()
    OUTBOX.add(connection, "order.placed", ("order", name), data)


class Spent:
    """Seconds of the clock and of this process's CPU, per piece of work, round by round."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []


Run = Callable[[], Awaitable[None]]


def cpu_of(server: int) -> float:
    """Seconds so far: of this process, and of one of the server's, as Linux keeps them."""
    return time.process_time() + int(Path(f"/proc/{server}/schedstat").read_text().split()[0]) / 1e9


async def alternating(subjects: dict[str, Run], n: int, server: int) -> dict[str, Spent]:
    """Rounds short enough that whoever else uses the machine meets all alike."""
    found = {name: Spent() for name in subjects}
    for run in subjects.values():
        await run()
    for number in range(PACE.less(ROUNDS, FEWEST)):
        for name in list(subjects) if number % 2 else list(reversed(subjects)):
            wall, cpu = time.perf_counter(), cpu_of(server)
            await subjects[name]()
            found[name].wall.append((time.perf_counter() - wall) / n)
            found[name].cpu.append((cpu_of(server) - cpu) / n)
    return found


def as_rows(case: str, found: dict[str, Spent]) -> list[Row]:
    """Medians, and medians of the ratios of a round."""
    lines = []
    for unit in ("wall", "cpu"):
        floor = getattr(found["floor"], unit)
        for name, spent in found.items():
            mine = getattr(spent, unit)
            ratio = median(a / b for a, b in zip(mine, floor, strict=True))
            named = case if unit == "wall" else f"{case}, CPU"
            lines.append(row(named, name, "us", [seconds * 1e6 for seconds in mine], ratio))
    return lines


class GivenUpError(Exception):
    """Rolls a transaction back."""


def transactions(connection: Any, add: Add | None) -> Run:
    """An effect and a message in each."""

    async def run() -> None:
        for _ in range(TRANSACTIONS):
            async with connection.transaction():
                await connection.execute(EFFECT)
                if add is not None:
                    await add(connection)

    return run


def many(connection: Any, add: Add) -> Run:
    """Messages alone, in one transaction that is given up."""

    async def run() -> None:
        with suppress(GivenUpError):
            async with connection.transaction():
                for _ in range(MANY):
                    await add(connection)
                raise GivenUpError

    return run


def blocking_transactions(connection: Any, add: BlockingAdd | None) -> Run:
    """The same, in blocking calls."""

    async def run() -> None:
        for _ in range(TRANSACTIONS):
            with connection.transaction():
                connection.execute(EFFECT)
                if add is not None:
                    add(connection)

    return run


def blocking_many(connection: Any, add: BlockingAdd) -> Run:
    """The same, in blocking calls."""

    async def run() -> None:
        with suppress(GivenUpError), connection.transaction():
            for _ in range(MANY):
                add(connection)
            raise GivenUpError

    return run


class On(NamedTuple):
    """A driver, and how things are done with it."""

    driver: str
    connection: Any
    server: int
    whole: Callable[[Any, Any], Run]
    alone: Callable[[Any, Any], Run]


async def compared(on: On, hand: Any, our: Any, peer: Any = None) -> list[Row]:
    """Both cases; `peer` is procrastinate's way."""
    adding = {"floor": hand, "twicesafe": our, **({"procrastinate": peer} if peer else {})}
    ways = {"effect alone": on.whole(on.connection, None)}
    ways |= {name: on.whole(on.connection, add) for name, add in adding.items()}
    spent = await alternating(ways, TRANSACTIONS, on.server)
    found = as_rows(f"transaction with a message, {on.driver}", spent)
    ways = {name: on.alone(on.connection, add) for name, add in adding.items()}
    return found + as_rows(f"message added, {on.driver}", await alternating(ways, MANY, on.server))


async def measured(url: str) -> list[Row]:
    """All drivers."""
    found: list[Row] = []
    one = await asyncpg.connect(url)
    try:
        await one.execute("CREATE TABLE effects (id bigserial PRIMARY KEY, account bigint, cents bigint)")
        await one.execute("TRUNCATE twicesafe_outbox")
        found += await compared(On("asyncpg", one, one.get_server_pid(), transactions, many), by_asyncpg, ours)
    finally:
        await one.close()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as two:
        on = On("psycopg async", two, two.info.backend_pid, transactions, many)
        found += await compared(on, by_psycopg, ours, by_procrastinate)
    with psycopg.connect(url, autocommit=True) as three:
        on = On("psycopg", three, three.info.backend_pid, blocking_transactions, blocking_many)
        found += await compared(on, by_psycopg_blocking, ours_blocking, by_procrastinate_blocking)
    return found


def run(url: str) -> list[Row]:
    """On a server that has the tables."""
    outbox_procrastinate.apply_schema(url)
    return asyncio.run(measured(url))
