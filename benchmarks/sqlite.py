"""Claim and answer in a SQLite file, 32 tasks at a time and one, each durable before it is answered.

`a transaction per request` is what an application writes: an INSERT ... ON CONFLICT for the claim and an UPDATE for the
answer, each committed by itself, with synchronous=FULL as twicesafe has it. `aiosqlite` sends them over one connection
of that package, `connection per thread` from a pool of threads; `one connection` sends them from the event loop itself,
which nobody may do, for all that its tasks stand still meanwhile.

The floor is the leanest version of twicesafe's own way: a thread that takes what has come in, performs it in one
transaction and tells all callers after its commit. `twicesafe` is claim and complete on the store, with all that a
record holds; `twicesafe, ASGI` the whole request.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from os import urandom
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import aiosqlite

from benchmarks.asgi import discard, fresh_key, request
from benchmarks.load import Once, throughput
from benchmarks.measure import Row, Subject, interleaved, rates
from benchmarks.statements import ANSWER, BODY, LINES, leased
from twicesafe import Effects, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.sqlite import AsyncSqliteStore

TASKS = 32
ROUNDS = 7
TIMES = 1200
TIMES_ALONE = 300
SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (
    digest BLOB NOT NULL PRIMARY KEY, owner BLOB NOT NULL, fingerprint BLOB NOT NULL, until INTEGER NOT NULL,
    status INTEGER, headers BLOB, body BLOB
)
"""
CLAIM = (
    "INSERT INTO keys (digest, owner, fingerprint, until) VALUES (?, ?, ?, unixepoch() + 30) "
    "ON CONFLICT DO NOTHING RETURNING 1"
)
COMPLETE = (
    "UPDATE keys SET status = 201, headers = ?, body = ?, until = unixepoch() + 86400 "
    "WHERE digest = ? AND owner = ? RETURNING 1"
)

Statement = tuple[str, tuple[Any, ...]]


def opened(path: Path) -> sqlite3.Connection:
    """A connection on which each statement is a transaction of its own."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(SCHEMA)
    return connection


def statements() -> tuple[Statement, Statement]:
    """Claim and answer of one request."""
    digest, owner = urandom(32), urandom(16)
    claim = CLAIM, (digest, owner, b"\x01" + urandom(32))
    return claim, (COMPLETE, (b"content-type: application/json", ANSWER, digest, owner))


# --- a transaction per request ----------------------------------------------------------------------------------------


def on_one_connection(connection: sqlite3.Connection) -> Once:
    """From the event loop."""

    async def once() -> None:
        for text, values in statements():
            assert connection.execute(text, values).fetchall()

    return once


def by_threads(path: Path, threads: ThreadPoolExecutor) -> Once:
    """A connection for each thread."""
    local = threading.local()

    def perform(statement: Statement) -> None:
        if not hasattr(local, "connection"):
            local.connection = opened(path)
        assert local.connection.execute(*statement).fetchall()

    async def once() -> None:
        for statement in statements():
            await asyncio.get_running_loop().run_in_executor(threads, perform, statement)

    return once


async def by_aiosqlite(path: Path, stack: AsyncExitStack) -> Once:
    """One connection of aiosqlite's, which has a thread."""
    connection = await stack.enter_async_context(aiosqlite.connect(path, isolation_level=None))
    await connection.execute("PRAGMA synchronous = FULL")

    async def once() -> None:
        for text, values in statements():
            assert await connection.execute_fetchall(text, values)

    return once


# --- the floor --------------------------------------------------------------------------------------------------------


class Grouped:
    """A thread that commits together whatever has come in."""

    def __init__(self, path: Path) -> None:
        self._connection = opened(path)
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    async def __call__(self) -> None:
        loop = asyncio.get_running_loop()
        for statement in statements():
            future: asyncio.Future[Any] = loop.create_future()
            self._asked.put((statement, future, loop))
            assert await future

    def close(self) -> None:
        """When everything was answered."""
        self._asked.put(None)
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        while True:
            group = [self._asked.get()]
            while not self._asked.empty():
                group.append(self._asked.get())
            if None in group:
                return
            self._connection.execute("BEGIN IMMEDIATE")
            answers = [(future, self._connection.execute(*statement).fetchall()) for statement, future, _ in group]
            self._connection.execute("COMMIT")
            group[0][2].call_soon_threadsafe(_tell, answers)


def _tell(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in answers:
        future.set_result(answer)


# --- twicesafe --------------------------------------------------------------------------------------------------------


def by_shell(store: AsyncSqliteStore) -> Once:
    """One first request through the ASGI shell."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": LINES})
        await send({"type": "http.response.body", "body": ANSWER})

    safe = IdempotencyMiddleware(app, store, scope=lambda scope: "user", policy=Policy(effects=Effects.KEYED))

    async def once() -> None:
        scope, receive = request(fresh_key(), BODY)
        await safe(scope, receive, discard)

    return once


async def measured(folder: Path, threads: ThreadPoolExecutor) -> list[Row]:
    """All cases, each subject in a file of its own."""
    found: list[Row] = []
    store, grouped = AsyncSqliteStore(folder / "twicesafe.db"), Grouped(folder / "grouped.db")
    alone, own = opened(folder / "alone.db"), opened(folder / "aiosqlite.db")
    async with AsyncExitStack() as stack:
        await store.apply_schema()
        ways: dict[str, Once] = {
            "one connection": on_one_connection(alone),
            "connection per thread": by_threads(folder / "threads.db", threads),
            "aiosqlite": await by_aiosqlite(folder / "aiosqlite.db", stack),
            "floor": grouped,
            "twicesafe": leased(store),
            "twicesafe, ASGI": by_shell(store),
        }
        for tasks, times in ((TASKS, TIMES), (1, TIMES_ALONE)):
            subjects = [Subject(name, throughput(once, tasks)) for name, once in ways.items()]
            await interleaved(subjects, rounds=ROUNDS, times=times)
            found += rates(f"leased, {tasks} task{'s' if tasks > 1 else ''}", subjects)
        await store.aclose()
    grouped.close()
    alone.close()
    own.close()
    return found


def run() -> list[Row]:
    """The benchmark, on the disk that has the temporary files."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(TASKS) as threads:
        return asyncio.run(measured(Path(folder), threads))
