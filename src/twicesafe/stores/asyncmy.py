"""Records in MySQL or MariaDB by asyncmy, beside your own tables, for any number of processes.

Round trips are the cost: statements that need no answer first travel together, BEGIN with the lock of the key and
COMMIT with the record.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import asyncmy
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError

from twicesafe.stores.deadlines import Deadlines
from twicesafe.stores.mysql import (
    Failure,
    Reply,
    address,
    check_pool_size,
    failure_of,
    patience,
    queries,
    settings_of,
    text_of,
    too_large,
)
from twicesafe.stores.mysql_async import AsyncMysqlStore
from twicesafe.stores.postgresql import (
    DEFAULT_POOL_SIZE,
    DEFAULT_TIMEOUT,
    no_connection,
    no_entry,
    seconds,
    without_password,
)
from twicesafe.stores.steps import Statement

__all__ = ["AsyncmyStore"]

LOST: Final = (OSError, MySQLError)
"""What asyncmy raises when it has no word from a server, or an error of one. A time-out is an OSError."""


class AsyncmyStore(AsyncMysqlStore):
    """An AsyncStore in the database that `database` leads to: a mysql:// URL, or an asyncmy.Pool of your own.

    With a URL the store opens a pool of at most `pool_size` connections when it is first used, and closes it. Your own
    pool stays yours; make it with autocommit=True, or every use of a connection takes two round trips more. `timeout`
    bounds each wait, for a connection and for a statement of the store's. `now_sql` is an SQL expression that replaces
    the database's clock; only tests have a reason to set it.
    """

    def __init__(
        self,
        database: str | asyncmy.Pool,
        *,
        pool_size: int = DEFAULT_POOL_SIZE,
        timeout: timedelta = DEFAULT_TIMEOUT,
        now_sql: str | None = None,
    ) -> None:
        url = without_password(database) if isinstance(database, str) else "mysql://..."
        connections = AsyncmyConnections(database, url, pool_size, seconds(timeout))
        super().__init__(connections, queries(now_sql), url, seconds(timeout))


class AsyncmyConnections:
    """See AsyncConnections."""

    def __init__(self, database: str | asyncmy.Pool, url: str, pool_size: int, timeout: float) -> None:
        check_pool_size(pool_size)
        self._settings = settings_of(address(database), timeout) if isinstance(database, str) else None
        self._pool = None if isinstance(database, str) else database
        self._url = url
        self._pool_size = pool_size
        self._timeout = timeout
        self._deadlines = Deadlines(timeout)
        self._opening = asyncio.Lock()
        self._turns = asyncio.Semaphore(pool_size if isinstance(database, str) else database.maxsize)
        """First come, first served. asyncmy's own pool lets whoever gives back and takes again go first, for ever."""
        self._largest: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._hasty: WeakSet[Any] = WeakSet()
        """Connections of the store's own pool that wait for locks as the store wants to."""
        self._changed: WeakSet[Any] = WeakSet()
        """Connections of somebody else's pool that began transactions by themselves, and will again."""
        self._releases: set[asyncio.Task[None]] = set()

    async def acquire(self) -> Any:
        """See AsyncConnections.acquire."""
        connection, turn = None, False
        try:
            with self._deadlines.wait():
                turn = await self._turns.acquire()
                pool = self._pool or await self._open()
                connection = await pool.acquire()
                if connection not in self._largest:
                    cursor = connection.cursor(Cursor)
                    await cursor.execute("SELECT @@max_allowed_packet")
                    [self._largest[connection]] = await cursor.fetchone()
                if not connection.get_autocommit():
                    await connection.autocommit(True)  # type: ignore[no-untyped-call]
                    if self._settings is None:
                        self._changed.add(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
                self._put(connection)
            elif turn:
                self._turns.release()
            if isinstance(error, TimeoutError):
                raise no_connection(self._timeout) from None
            if isinstance(error, LOST):
                raise no_entry(self._url, error) from error
            raise
        return connection

    async def _open(self) -> asyncmy.Pool:
        async with self._opening:
            if self._pool is None:
                assert self._settings is not None
                self._pool = await asyncmy.create_pool(minsize=0, maxsize=self._pool_size, **self._settings)
            return self._pool

    async def release(self, connection: Any) -> None:
        """See AsyncConnections.release."""
        if connection not in self._changed:
            self._put(connection)
            return
        task = asyncio.ensure_future(self._restore(connection))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        await asyncio.shield(task)

    async def _restore(self, connection: Any) -> None:
        try:
            if connection.connected:
                async with asyncio.timeout(self._timeout):
                    await connection.autocommit(False)
        except LOST:
            connection.close()
        finally:
            self._put(connection)

    def _put(self, connection: Any) -> None:
        assert self._pool is not None
        self._changed.discard(connection)
        self._pool.release(connection)
        self._turns.release()

    def attune(self, connection: Any, *, in_transaction: bool) -> tuple[Statement, ...]:
        """See AsyncConnections.attune. A pool of somebody else's does as it was told."""
        if self._settings is None or (connection in self._hasty) is not in_transaction:
            return ()
        (self._hasty.discard if in_transaction else self._hasty.add)(connection)
        return (patience(None if in_transaction else self._timeout),)

    async def send(self, connection: Any, reply: Reply) -> None:
        """See AsyncConnections.send. asyncmy's connections all take several statements at once."""
        text = "; ".join([text_of(statement) for statement in reply.statements])
        if len(text) >= self.largest(connection):
            raise too_large()
        cursor = connection.cursor(Cursor)
        with self._deadlines.wait():
            await cursor.execute(text)
            while True:
                reply.take(await cursor.fetchall() if cursor.description else (), cursor.lastrowid, cursor.rowcount)
                if reply.answered == len(reply.statements):
                    return
                await cursor.nextset()

    def largest(self, connection: Any) -> int:
        """See AsyncConnections.largest."""
        return self._largest[connection]

    def failure(self, error: Exception) -> Failure | None:
        """See AsyncConnections.failure."""
        if isinstance(error, MySQLError):
            return failure_of(error.args[0] if error.args else None, str(error.args[-1] if error.args else error))
        return Failure(None, str(error) or type(error).__name__) if isinstance(error, OSError) else None

    def broken(self, connection: Any) -> None:
        """See AsyncConnections.broken."""
        connection.close()

    async def aclose(self) -> None:
        """See AsyncConnections.aclose."""
        if self._releases:
            await asyncio.wait(self._releases)
        if self._settings is not None and self._pool is not None:
            pool, self._pool = self._pool, None
            pool.close()
            await pool.wait_closed()
