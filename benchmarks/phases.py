"""Operations of three phases on PostgreSQL by asyncpg, 16 at once, beside the same by hand.

The floor is what somebody writes who knows what is needed: a row that says how far the operation is, three transactions
that each write an effect and move it on, and an answer; over the same driver and its pool. The peers are a workflow of
dbos (phases_dbos) and a job of procrastinate for each step (phases_procrastinate). benchmarks.recovery measures how
fast operations that broke off are ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from os import urandom
from typing import Any
from uuid import uuid4

import asyncpg

from benchmarks import phases_dbos, phases_procrastinate
from benchmarks.load import throughput
from benchmarks.measure import Row, Subject, interleaved, rows
from twicesafe.once import AsyncOnce, current
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.storm.postgresql import PrivatePostgreSQL

TASKS = 16
ROUNDS = 41
TIMES = 150
"""Many short rounds: what else the server writes meanwhile comes and goes in seconds."""
EFFECT = "INSERT INTO effects (operation, step) VALUES ($1, $2)"

SCHEMA = """
CREATE TABLE effects (id bigserial PRIMARY KEY, operation text NOT NULL, step text NOT NULL);
CREATE TABLE operations (
    id bytea PRIMARY KEY, owner bytea NOT NULL, lease_until timestamptz NOT NULL, fingerprint bytea NOT NULL,
    request bytea NOT NULL, step integer NOT NULL DEFAULT 0, results bytea, answer bytea
);
"""
CLAIM = """
INSERT INTO operations (id, owner, lease_until, fingerprint, request)
VALUES ($1, $2, clock_timestamp() + interval '30 s', $3, $4) ON CONFLICT (id) DO NOTHING RETURNING owner
"""
MOVE_ON = "UPDATE operations SET step = $4, results = $5 WHERE id = $1 AND owner = $2 AND step = $3 RETURNING 1"
ANSWER = "UPDATE operations SET answer = $3 WHERE id = $1 AND owner = $2 RETURNING 1"


def by_hand(pool: Any) -> Callable[[], Awaitable[None]]:
    """One operation, hand-written."""

    async def once() -> None:
        name, owner = str(uuid4()), urandom(16)
        digest = urandom(32)
        assert await pool.fetchval(CLAIM, digest, owner, urandom(32), json.dumps([name]).encode()) == owner
        results: list[Any] = []
        for step in range(3):
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(EFFECT, name, f"step {step}")
                results.append(step)
                kept = json.dumps(results).encode()
                assert await connection.fetchval(MOVE_ON, digest, owner, step, step + 1, kept)
        assert await pool.fetchval(ANSWER, digest, owner, b"3")

    return once


async def effect(connection: Any, name: str, step: int) -> int:
    """A phase."""
    await connection.execute(EFFECT, name, f"step {step}")
    return step


def by_twicesafe(once: AsyncOnce) -> Callable[[], Awaitable[None]]:
    """The same, as an operation."""

    @once.operation(key=lambda name: name, effects="resumable", name="three")
    async def three(name: str) -> int:
        at: Any = current()
        for step in range(3):
            await at.phase(f"step {step}", effect, name, step)
        return 3

    async def run() -> None:
        assert await three(str(uuid4())) == 3

    return run


async def measured(url: str) -> list[Row]:
    """All cases."""
    store = AsyncpgStore(url, pool_size=TASKS)
    pool = await asyncpg.create_pool(url, min_size=TASKS, max_size=TASKS)
    try:
        await store.apply_schema()
        await pool.execute(SCHEMA)
        once = AsyncOnce(store, scope="bench", observer=lambda event: None)
        ways = {"floor": throughput(by_hand(pool), TASKS), "twicesafe": throughput(by_twicesafe(once), TASKS)}
        subjects = [Subject(name, way) for name, way in ways.items()]
        await interleaved(subjects, rounds=ROUNDS, times=TIMES)
        found = rows("three phases", "ms", subjects, lambda seconds: seconds * 1_000)
        # By themselves: their threads and workers have something to do also while the others are measured.
        async with phases_dbos.launched(url, TASKS) as workflow, phases_procrastinate.working(url, TASKS) as jobs:
            ways |= {"dbos": throughput(workflow, TASKS), "procrastinate": jobs}
            subjects = [Subject(name, way) for name, way in ways.items()]
            await interleaved(subjects, rounds=ROUNDS // 4, times=TIMES, patience=2)
        found += rows("three phases, among peers", "ms", subjects, lambda seconds: seconds * 1_000)
    finally:
        await pool.close()
        await store.aclose()
    return found


def run() -> list[Row]:
    """The benchmark, on a private server with fsync on."""
    with PrivatePostgreSQL({"max_connections": str(8 * TASKS + 20)}) as server:
        return asyncio.run(measured(server.url))
