"""Records in PostgreSQL by asyncpg, beside your own tables, for any number of processes.

Round trips are the cost: each statement is a prepared one, BEGIN travels with the lock of the key, and what a pool
would send to clean a connection travels with COMMIT.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any, Final, TypeAlias

import asyncpg

from twicesafe.errors import ConfigurationError
from twicesafe.stores.connecting import DEFAULT_POOL_SIZE, DEFAULT_TIMEOUT, no_connection, no_entry, seconds
from twicesafe.stores.postgresql import (
    CHANNEL,
    UNREADABLE,
    Failure,
    joined,
    queries,
    shown_url,
    with_days,
    without_days,
)
from twicesafe.stores.postgresql_async import AsyncPostgresqlStore
from twicesafe.stores.sql.statements import Placeholder
from twicesafe.stores.steps import Rows, Statement

__all__ = ["AsyncpgStore"]

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

STATEMENTS: Final = 100
"""How many prepared statements a connection keeps; asyncpg's own default."""

LOST: Final = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What asyncpg raises when there is no word from a server. A time-out is an OSError."""


class AsyncpgStore(AsyncPostgresqlStore):
    """An AsyncStore in the database that `database` leads to: a DSN, or a pool of your own.

    With a DSN the store opens a pool of at most `pool_size` connections when it is first used, and closes it. Your own
    pool stays yours, with whatever it does when a connection comes back; by default that is a round trip more.
    `timeout` bounds each wait, for a connection and for a statement of the store's. `prepared` False is for a pooler
    that gives each transaction another session, such as PgBouncer in transaction mode. `now_sql` is an SQL expression
    that replaces the database's clock; only tests have a reason to set it.
    `daily_bodies`, the longest body_retention in use, asks for the daily layout: bodies in a partition for each day,
    dropped as a whole.
    """

    def __init__(
        self,
        database: str | Pool,
        *,
        pool_size: int = DEFAULT_POOL_SIZE,
        timeout: timedelta = DEFAULT_TIMEOUT,
        prepared: bool = True,
        now_sql: str | None = None,
        daily_bodies: timedelta | None = None,
    ) -> None:
        database, daily_bodies = without_days(database, daily_bodies)
        url = shown_url(database)
        connections = AsyncpgConnections(database, url, pool_size, seconds(timeout), prepared=prepared)
        super().__init__(connections, queries(Placeholder.NUMBER, now_sql, daily_bodies), with_days(url, daily_bodies))


class AsyncpgConnections:
    """See AsyncConnections."""

    revokes = True

    def __init__(self, database: str | Pool, url: str, pool_size: int, timeout: float, *, prepared: bool) -> None:
        self._dsn = database if isinstance(database, str) else None
        self._pool = None if isinstance(database, str) else database
        self._url = url
        self._pool_size = pool_size
        self._timeout = timeout
        self._prepared = prepared
        self._opening = asyncio.Lock()
        self._lent = 0
        self._asked: dict[Any, float] = {}
        """Since when each connection has been waited for."""
        self._watch: asyncio.TimerHandle | None = None

    async def acquire(self) -> Any:
        """See AsyncConnections.acquire."""
        self._lent += 1
        try:
            pool = self._pool
            if pool is None:
                pool = await self._open()
            if self._dsn is not None and self._lent <= self._pool_size:
                # There is one for certain. A timer costs as much as a fifth of a statement.
                return await pool.acquire()
            async with asyncio.timeout(self._timeout):
                return await pool.acquire()
        except BaseException as error:
            self._lent -= 1
            if isinstance(error, TimeoutError):
                raise no_connection(self._timeout) from None
            if isinstance(error, (*LOST, asyncpg.PostgresError)):
                raise no_entry(self._url, error) from error
            if self._dsn is not None and isinstance(error, ValueError | OverflowError):
                raise ConfigurationError(UNREADABLE) from None  # asyncpg repeats what may be part of a password
            raise

    async def _open(self) -> Pool:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._dsn,
                    min_size=0,
                    max_size=self._pool_size,
                    reset=_cleaned_already,
                    timeout=self._timeout,
                    statement_cache_size=STATEMENTS if self._prepared else 0,
                )
            return self._pool

    async def release(self, connection: Any) -> None:
        """See AsyncConnections.release. asyncpg shields what it does here."""
        pool = self._pool
        self._lent -= 1
        if pool is not None:
            await pool.release(connection)
        # else it came back too late, and was hung up with its pool.

    async def send(self, connection: Any, before: tuple[Statement, ...], statement: Statement) -> Rows:
        """See AsyncConnections.send. The simple protocol takes several statements, but neither parameters nor rows."""
        self._asked[connection] = monotonic()
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(self._timeout / 2, self._hang_up)
        try:
            if before:
                await connection.execute(joined(before))
            if not statement.returns:
                await connection.execute(statement.text, *statement.parameters)
                return ()
            rows: Rows = await connection.fetch(statement.text, *statement.parameters)
            return rows
        finally:
            del self._asked[connection]

    def _hang_up(self) -> None:
        """Close the connections that have been silent for too long.

        One timer looks after all; asyncpg's own, one for each statement, take a twentieth of a transaction's time.
        """
        overdue = monotonic() - self._timeout
        for connection, since in self._asked.items():
            if since <= overdue:
                self.broken(connection)
        again = asyncio.get_running_loop().call_later(self._timeout / 2, self._hang_up) if self._asked else None
        self._watch = again

    def failure(self, error: Exception) -> Failure | None:
        """See AsyncConnections.failure."""
        if isinstance(error, asyncpg.PostgresError):
            return Failure(error.sqlstate, str(error))
        # A ValueError is a parameter that cannot be sent.
        if isinstance(error, LOST) and not isinstance(error, ValueError):
            return Failure(None, str(error) or type(error).__name__)
        return None

    def reset_sql(self, connection: Any) -> str:
        """See AsyncConnections.reset_sql. A pool of somebody else's does as it was told."""
        if self._dsn is None:
            return ""
        try:
            return str(connection.get_reset_query())
        except asyncpg.InterfaceError:
            # It broke while the handler had it: whatever is sent now says so.
            return ""

    def begun(self, connection: Any, *, open: bool) -> None:  # noqa: A002 - the one word for it
        """Let the connection's own `transaction()` make savepoints inside a transaction that it did not begin itself.

        asyncpg refuses to in "a manually started transaction", and has no way to begin one along with a statement.
        """
        inner = connection._con  # noqa: SLF001 - see above
        if inner is not None:
            inner._top_xact = inner.transaction(isolation="read_committed") if open else None  # noqa: SLF001 - see above

    def ended_early(self, connection: Any) -> bool:
        """See AsyncConnections.ended_early. The driver knows it from the server's last word, not from `begun`."""
        inner = connection._con  # noqa: SLF001 - one that broke has left its pool's hands
        return inner is not None and not inner.is_closed() and not inner.is_in_transaction()

    def broken(self, connection: Any) -> None:
        """See AsyncConnections.broken. One that broke by itself has left its pool's hands already."""
        with suppress(asyncpg.InterfaceError):
            connection.terminate()

    async def listen(self, told: Callable[[str], None]) -> AsyncpgLine | None:
        """See Lines.listen. A pooler of transactions gives itself away: the process it names is not the server's."""
        if self._dsn is None:
            return None
        connection = await asyncpg.connect(
            self._dsn, timeout=self._timeout, command_timeout=self._timeout, statement_cache_size=0
        )
        try:
            if await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid():
                connection.terminate()
                return None
            await connection.add_listener(CHANNEL, lambda *said: told(str(said[3])))
        except BaseException:
            connection.terminate()
            raise
        return AsyncpgLine(connection)

    async def aclose(self) -> None:
        """See AsyncConnections.aclose."""
        if self._watch is not None:
            self._watch.cancel()
        pool = self._pool
        if self._dsn is not None and pool is not None:
            try:
                with suppress(TimeoutError):
                    # It waits until every connection has come back, says goodbye on it and waits for an answer.
                    # Cancelled, it hangs up instead.
                    async with asyncio.timeout(self._timeout):
                        await pool.close()
            finally:
                self._pool = None


class AsyncpgLine:
    """See Line."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def ask(self, statement: Statement) -> Rows:
        """See Line.ask."""
        rows: Rows = await self._connection.fetch(statement.text, *statement.parameters)
        return rows

    async def aclose(self) -> None:
        """See Line.aclose. Without a word: the server lets go of what it held all the same."""
        self._connection.terminate()


async def _cleaned_already(connection: object) -> None:
    """A pool's reset, where the store has done it on the way."""
