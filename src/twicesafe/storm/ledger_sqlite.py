"""The ledger in a SQLite file, on connections of the service's own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from twicesafe.errors import StoreUnavailableError
from twicesafe.storm.ledger import TABLE, Payment, by_intent

BUSY: Final = 30.0
"""Seconds a writer waits for the file: long enough never to fail on it, because that is not what is to be shown."""


class SqliteLedger:
    """A Ledger in `file`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._turn = asyncio.Lock()
        """Threads are few: waiting writers must not take the one that the writer needs to commit."""

    async def __aenter__(self) -> SqliteLedger:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Nothing stays open."""

    async def create(self) -> None:
        def create() -> None:
            with closing(self._connect()) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(TABLE)

        with self.errors():
            await asyncio.to_thread(create)

    async def write(self, connection: Any, number: str, payment: Payment) -> None:
        await connection.execute("INSERT INTO storm_payments VALUES (?, ?, ?, ?, ?)", (number, *payment))

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"the ledger cannot be kept in {self._file}: {error}") from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._turn:
            connection = _Threaded(await asyncio.to_thread(self._connect))
            try:
                await connection.execute("BEGIN IMMEDIATE")
                yield connection
                await connection.execute("COMMIT")
            finally:
                await connection.close()

    async def payments(self, run: str) -> Mapping[int, list[str]]:
        def read() -> list[tuple[int, str]]:
            with closing(self._connect()) as connection:
                return connection.execute("SELECT intent, number FROM storm_payments WHERE run = ?", (run,)).fetchall()

        return by_intent(await asyncio.to_thread(read))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._file, timeout=BUSY, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection


class _Threaded:
    """A blocking connection for a coroutine: each statement in a thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def execute(self, sql: str, values: tuple[object, ...] = ()) -> None:
        await asyncio.to_thread(self._connection.execute, sql, values)

    async def close(self) -> None:
        await asyncio.to_thread(self._connection.close)
