"""Records in PostgreSQL by psycopg 3, blocking or for asyncio, beside your own tables, for any number of processes.

Round trips are the cost: what needs no answer first travels together in a pipeline, statements are prepared when they
come again and again, and what cleans a connection travels with COMMIT.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from threading import Lock
from typing import Any, Final, TypeAlias

import psycopg
import psycopg_pool
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.rows import tuple_row

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.connecting import DEFAULT_POOL_SIZE, DEFAULT_TIMEOUT, no_connection, no_entry, seconds
from twicesafe.stores.deadlines import Deadlines
from twicesafe.stores.deadlines_blocking import BlockingDeadlines
from twicesafe.stores.forks import keep_for_ever, mind_forks
from twicesafe.stores.postgresql import CHANNEL, Failure, queries, shown_url, with_days, without_days
from twicesafe.stores.postgresql_async import AsyncPostgresqlStore
from twicesafe.stores.postgresql_sync import PostgresqlStore
from twicesafe.stores.sql.statements import Placeholder
from twicesafe.stores.steps import Rows, Statement
from twicesafe.stores.undisturbed import undisturbed

__all__ = ["AsyncPsycopgStore", "PsycopgStore"]

Pool: TypeAlias = "psycopg_pool.ConnectionPool[Any]"
AsyncPool: TypeAlias = "psycopg_pool.AsyncConnectionPool[Any]"

RESET: Final = "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL"
"""Handlers leave things behind."""


UNPREPARED: Final = {"prepare_threshold": None}
"""Statements leave no name behind in a session that somebody else has next."""


class PsycopgStore(PostgresqlStore):
    """A Store in the database that `database` leads to: a DSN, or a psycopg_pool.ConnectionPool of your own.

    Needs libpq 14 or later, as psycopg[binary] has. With a DSN the store opens a pool of at most `pool_size`
    connections when it is first used, and closes it. Your own pool stays yours, with whatever it does when a
    connection comes back. `timeout` bounds each wait, for a connection and for a statement of the store's. `prepared`
    False is for a pooler that gives each transaction another session, such as PgBouncer in transaction mode. `now_sql`
    is an SQL expression that replaces the database's clock; only tests have a reason to set it.
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
        connections = PsycopgConnections(database, url, pool_size, seconds(timeout), prepared=prepared)
        super().__init__(connections, queries(Placeholder.PERCENT, now_sql, daily_bodies), with_days(url, daily_bodies))


class AsyncPsycopgStore(AsyncPostgresqlStore):
    """An AsyncStore in the database that `database` leads to: a DSN, or a psycopg_pool.AsyncConnectionPool of your own.

    See PsycopgStore.
    """

    def __init__(
        self,
        database: str | AsyncPool,
        *,
        pool_size: int = DEFAULT_POOL_SIZE,
        timeout: timedelta = DEFAULT_TIMEOUT,
        prepared: bool = True,
        now_sql: str | None = None,
        daily_bodies: timedelta | None = None,
    ) -> None:
        database, daily_bodies = without_days(database, daily_bodies)
        url = shown_url(database)
        connections = AsyncPsycopgConnections(database, url, pool_size, seconds(timeout), prepared=prepared)
        super().__init__(connections, queries(Placeholder.PERCENT, now_sql, daily_bodies), with_days(url, daily_bodies))


class _Psycopg:
    """What is the same, blocking or not."""

    revokes = False

    def __init__(self, dsn: str | None, url: str, pool_size: int, timeout: float, *, prepared: bool) -> None:
        self._dsn = dsn
        self._url = url
        self._pool_size = pool_size
        self._timeout = timeout
        self._options: dict[str, Any] = {"autocommit": True} if prepared else {"autocommit": True, **UNPREPARED}
        self._changed: set[Any] = set()
        """Connections of somebody else's pool that began transactions by themselves, and will again."""

    def failure(self, error: Exception) -> Failure | None:
        """See Connections.failure."""
        if isinstance(error, psycopg.Error):
            if error.sqlstate is not None:
                return Failure(error.sqlstate, str(error))
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                return Failure(None, str(error))
        return Failure(None, type(error).__name__) if isinstance(error, TimeoutError) else None

    def reset_sql(self, connection: object) -> str:  # noqa: ARG002 - the same for all
        """See Connections.reset_sql. A pool of somebody else's does as it was told."""
        return "" if self._dsn is None else RESET

    def begun(self, connection: object, *, open: bool) -> None:  # noqa: A002 - the one word for it
        """psycopg asks the server's last word whether a transaction is open."""

    def ended_early(self, connection: Any) -> bool:
        """See Connections.ended_early."""
        return _idle(connection)


class PsycopgConnections(_Psycopg):
    """See Connections."""

    def __init__(self, database: str | Pool, url: str, pool_size: int, timeout: float, *, prepared: bool) -> None:
        super().__init__(database if isinstance(database, str) else None, url, pool_size, timeout, prepared=prepared)
        self._pool = None if isinstance(database, str) else database
        self._opening = Lock()
        self._deadlines = BlockingDeadlines(timeout)
        if self._dsn is not None:
            mind_forks(self)

    def forked(self) -> None:
        """See Forked. The threads of the pool, and of the deadlines, are not here."""
        keep_for_ever(self._pool)
        self._pool, self._opening, self._deadlines = None, Lock(), BlockingDeadlines(self._timeout)

    def acquire(self) -> Any:
        """See Connections.acquire."""
        pool = self._pool
        if pool is None:
            pool = self._open()
        for _ in range(pool.max_size + 1):
            try:
                connection = pool.getconn(self._timeout)
            except psycopg_pool.PoolTimeout as error:
                raise no_connection(self._timeout) from error
            except psycopg.Error as error:
                raise no_entry(self._url, error) from error
            if _alive(connection):
                if not connection.autocommit:
                    connection.autocommit = True
                    self._changed.add(connection)
                return connection
            pool.putconn(connection)
        raise StoreUnavailableError(f"every connection to {self._url} was found broken")

    def _open(self) -> Pool:
        with self._opening:
            if self._pool is None:
                assert self._dsn is not None
                self._pool = psycopg_pool.ConnectionPool(
                    self._dsn,
                    min_size=1,
                    max_size=self._pool_size,
                    kwargs=self._options,
                    open=True,
                    # Longer, and after a long outage nobody tries again before the pauses, which double, are over.
                    reconnect_timeout=self._timeout,
                )
            return self._pool

    def release(self, connection: Any) -> None:
        """See Connections.release."""
        pool = self._pool
        if connection in self._changed:
            self._changed.discard(connection)
            if _idle(connection):
                connection.autocommit = False
        if pool is None:
            # The store was closed meanwhile, and its pool with it.
            connection.close()
        else:
            pool.putconn(connection)

    def send(self, connection: Any, before: tuple[Statement, ...], statement: Statement) -> Rows:
        """See Connections.send. Whatever row factory the connection has, the store reads tuples."""
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        with self._deadlines.wait(connection.fileno()):
            if before:
                with connection.pipeline():
                    for first in before:
                        cursor.execute(first.text, first.parameters)
                    cursor.execute(statement.text, statement.parameters, binary=True)
            elif statement.returns:
                cursor.execute(statement.text, statement.parameters, binary=True)
            else:
                # Without parameters it may be several statements.
                cursor.execute(statement.text, statement.parameters or None)
            return cursor.fetchall() if statement.returns else ()

    def broken(self, connection: Any) -> None:
        """See Connections.broken."""
        connection.close()

    def close(self) -> None:
        """See Connections.close."""
        if self._dsn is not None and self._pool is not None:
            pool, self._pool = self._pool, None
            pool.close()


class AsyncPsycopgConnections(_Psycopg):
    """See AsyncConnections."""

    def __init__(self, database: str | AsyncPool, url: str, pool_size: int, timeout: float, *, prepared: bool) -> None:
        super().__init__(database if isinstance(database, str) else None, url, pool_size, timeout, prepared=prepared)
        self._pool = None if isinstance(database, str) else database
        self._opening = asyncio.Lock()
        self._puttings: set[asyncio.Task[None]] = set()
        self._deadlines = Deadlines(timeout)

    async def acquire(self) -> Any:
        """See AsyncConnections.acquire."""
        pool = self._pool
        if pool is None:
            pool = await self._open()
        for _ in range(pool.max_size + 1):
            try:
                connection = await pool.getconn(self._timeout)
            except psycopg_pool.PoolTimeout as error:
                raise no_connection(self._timeout) from error
            except psycopg.Error as error:
                raise no_entry(self._url, error) from error
            if _alive(connection):
                if not connection.autocommit:
                    # Nothing to wait for: no transaction is open, and nobody else has the connection.
                    await connection.set_autocommit(True)
                    self._changed.add(connection)
                return connection
            await self.release(connection)
        raise StoreUnavailableError(f"every connection to {self._url} was found broken")

    async def _open(self) -> AsyncPool:
        async with self._opening:
            if self._pool is None:
                assert self._dsn is not None
                pool: AsyncPool = psycopg_pool.AsyncConnectionPool(
                    self._dsn,
                    min_size=1,
                    max_size=self._pool_size,
                    kwargs=self._options,
                    open=False,
                    # See PsycopgConnections.
                    reconnect_timeout=self._timeout,
                )
                await pool.open()
                self._pool = pool
            return self._pool

    async def release(self, connection: Any) -> None:
        """See AsyncConnections.release. The pool may have to wait for its own lock, and would lose what it is given."""
        await undisturbed(self._put(connection), self._puttings)

    async def _put(self, connection: Any) -> None:
        pool = self._pool
        if connection in self._changed:
            self._changed.discard(connection)
            if _idle(connection):
                await connection.set_autocommit(False)
        if pool is None:
            # See PsycopgConnections.
            await connection.close()
        else:
            await pool.putconn(connection)

    async def send(self, connection: Any, before: tuple[Statement, ...], statement: Statement) -> Rows:
        """See AsyncConnections.send. Whatever row factory the connection has, the store reads tuples."""
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        with self._deadlines.wait():
            if before:
                async with connection.pipeline():
                    for first in before:
                        await cursor.execute(first.text, first.parameters)
                    await cursor.execute(statement.text, statement.parameters, binary=True)
            elif statement.returns:
                await cursor.execute(statement.text, statement.parameters, binary=True)
            else:
                # Without parameters it may be several statements.
                await cursor.execute(statement.text, statement.parameters or None)
            return await cursor.fetchall() if statement.returns else ()

    def broken(self, connection: Any) -> None:
        """See AsyncConnections.broken."""
        connection.pgconn.finish()

    async def listen(self, told: Callable[[str], None]) -> AsyncPsycopgLine | None:
        """See Lines.listen. A pooler of transactions gives itself away: the process it names is not the server's."""
        if self._dsn is None:
            return None
        async with asyncio.timeout(self._timeout):
            connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, prepare_threshold=None)
        line = AsyncPsycopgLine(connection, told, self._timeout)
        try:
            rows = await line.ask(Statement("server", "SELECT pg_backend_pid()", (), writes=False, returns=True))
            if rows[0][0] != connection.info.backend_pid:
                await line.aclose()
                return None
            await line.ask(Statement("listen", f"LISTEN {CHANNEL}", (), writes=False, returns=False))
        except BaseException:
            await line.aclose()
            raise
        return line

    async def aclose(self) -> None:
        """See AsyncConnections.aclose."""
        if self._puttings:
            await asyncio.wait(self._puttings)
        if self._dsn is not None and self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()


class AsyncPsycopgLine:
    """See Line. psycopg hears of notices only while it is asked to wait for them, and then cannot be asked anything
    else; so what arrives in between is read from here."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], told: Callable[[str], None], timeout: float) -> None:
        self._connection = connection
        self._told = told
        self._timeout = timeout
        self._socket = connection.fileno()
        connection.add_notify_handler(lambda notify: told(notify.payload))

    async def ask(self, statement: Statement) -> Rows:
        """See Line.ask."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
        async with asyncio.timeout(self._timeout):
            await cursor.execute(statement.text, statement.parameters, binary=True)
            rows = await cursor.fetchall() if statement.returns else []
        loop.add_reader(self._socket, self._arrived)
        self._arrived()
        return rows

    def _arrived(self) -> None:
        pgconn = self._connection.pgconn
        try:
            pgconn.consume_input()
            while (notify := pgconn.notifies()) is not None:
                self._told(notify.extra.decode())
        except psycopg.OperationalError:
            # The server is gone; whoever asks next is told.
            asyncio.get_running_loop().remove_reader(self._socket)

    async def aclose(self) -> None:
        """See Line.aclose."""
        asyncio.get_running_loop().remove_reader(self._socket)
        await self._connection.close()


def _alive(connection: Any) -> bool:
    """Whether the server has closed it meanwhile, as far as this end can tell without asking."""
    try:
        # First what the server said before it closed, then that it did.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return bool(connection.pgconn.status == ConnStatus.OK)


def _idle(connection: Any) -> bool:
    """Whether it is open and in no transaction."""
    return bool(connection.pgconn.transaction_status == TransactionStatus.IDLE)
