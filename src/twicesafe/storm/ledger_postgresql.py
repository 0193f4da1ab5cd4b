"""The ledger in PostgreSQL, on connections of the service's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import asyncpg

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.connecting import without_password
from twicesafe.storm.ledger import TABLE, Payment, by_intent

CONNECTIONS: Final = 10
"""Of one process at most."""


class PostgresqlLedger:
    """A Ledger in the database at `url`. Connects when it is first used."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = asyncpg.create_pool(url, min_size=0, max_size=CONNECTIONS)

    async def __aenter__(self) -> PostgresqlLedger:
        await self._pool
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._pool.close()

    async def create(self) -> None:
        with self.errors():
            async with self._pool.acquire() as connection:
                await connection.execute(TABLE)

    async def write(self, connection: Any, number: str, payment: Payment) -> None:
        with self.errors():
            await connection.execute("INSERT INTO storm_payments VALUES ($1, $2, $3, $4, $5)", number, *payment)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        with self.errors():
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection

    async def payments(self, run: str) -> Mapping[int, list[str]]:
        with self.errors():
            async with self._pool.acquire() as connection:
                rows = await connection.fetch("SELECT intent, number FROM storm_payments WHERE run = $1", run)
        return by_intent((row["intent"], row["number"]) for row in rows)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """As the storm knows them."""
        try:
            yield
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            where = without_password(self._url)
            raise StoreUnavailableError(f"the ledger cannot be kept in {where}: {error}") from error
