"""The ledger in MySQL or MariaDB, on connections of the service's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import asyncmy
from asyncmy.errors import MySQLError

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.connecting import without_password
from twicesafe.stores.mysql import address, settings_of
from twicesafe.storm.ledger import Payment, by_intent

CONNECTIONS: Final = 10
"""Of one process at most."""
CONNECT_TIMEOUT: Final = 10.0

TABLE: Final = """
CREATE TABLE IF NOT EXISTS storm_payments (
    number CHAR(32) NOT NULL PRIMARY KEY,
    run VARCHAR(64) NOT NULL,
    intent INTEGER NOT NULL,
    account VARCHAR(64) NOT NULL,
    amount VARCHAR(64) NOT NULL,
    KEY storm_payments_run (run)
) ENGINE = InnoDB
"""


class MysqlLedger:
    """A Ledger in the database at `url`. Connects when it is first used."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: Any = None

    async def __aenter__(self) -> MysqlLedger:
        settings = settings_of(address(self._url), CONNECT_TIMEOUT)
        self._pool = await asyncmy.create_pool(minsize=0, maxsize=CONNECTIONS, **settings)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._pool.close()
        await self._pool.wait_closed()

    async def create(self) -> None:
        await self._rows(TABLE)

    async def write(self, connection: Any, number: str, payment: Payment) -> None:
        with self.errors():
            cursor = connection.cursor()
            await cursor.execute("INSERT INTO storm_payments VALUES (%s, %s, %s, %s, %s)", (number, *payment))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        with self.errors():
            async with self._pool.acquire() as connection:
                await connection.begin()
                try:
                    yield connection
                except BaseException:
                    connection.close()
                    raise
                await connection.commit()

    async def payments(self, run: str) -> Mapping[int, list[str]]:
        return by_intent(await self._rows("SELECT intent, number FROM storm_payments WHERE run = %s", run))

    async def _rows(self, query: str, *parameters: str) -> Any:
        with self.errors():
            async with self._pool.acquire() as connection:
                cursor = connection.cursor()
                await cursor.execute(query, parameters or None)
                return await cursor.fetchall() if cursor.description else ()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """As the storm knows them."""
        try:
            yield
        except (OSError, MySQLError) as error:
            where = without_password(self._url)
            raise StoreUnavailableError(f"the ledger cannot be kept in {where}: {error}") from error
