"""Records in MySQL or MariaDB by asyncmy, beside your own tables, for any number of processes.

Round trips are the cost: statements that need no answer first travel together, BEGIN with the lock of the key and
COMMIT with the record. The leased way's two statements travel alone, so the server need not read them anew each time:
they are prepared once for each connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Final, final
from weakref import WeakKeyDictionary

import asyncmy
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.connecting import (
    DEFAULT_POOL_SIZE,
    DEFAULT_TIMEOUT,
    no_connection,
    no_entry,
    seconds,
    without_password,
)
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
    size_of,
    text_of,
    too_large,
)
from twicesafe.stores.mysql_async import AsyncMysqlStore
from twicesafe.stores.steps import Statement

__all__ = ["AsyncmyStore"]

LOST: Final = (OSError, MySQLError)
"""What asyncmy raises when it has no word from a server, or an error of one. A time-out is an OSError."""

PREPARED: Final = frozenset({"claim", "complete"})
"""Statements that are worth a name on the server. It has 16,382 of them for all connections together."""

FORGOTTEN: Final = frozenset({1243, 1615})
"""What a server answers for a name that it does not know any more, or cannot use any more: nothing was done."""

UNICODE: Final = "utf8mb4"
"""A connection of another character set may have no bytes for what a scope or a key's hint is written in."""


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


@final
class _Known:
    """What is known of a connection."""

    __slots__ = ("changed", "hasty", "largest", "prepared", "session")

    def __init__(self, session: int, largest: int) -> None:
        self.session = session
        """The server's number for it. With another, it has been connected anew, and nothing is known of it."""
        self.largest = largest
        """Bytes of the largest packet that the server takes."""
        self.hasty = False
        """Whether it waits for locks as the store wants to. Only those of the store's own pool do."""
        self.changed = False
        """Whether it began transactions by itself, and will again: one of somebody else's pool."""
        self.prepared: dict[str, Any] = {}
        """By the name of a statement. None: once more as a text."""


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
        self._closing = False
        self._turns = asyncio.Semaphore(pool_size if isinstance(database, str) else database.maxsize)
        """First come, first served. asyncmy's own pool lets whoever gives back and takes again go first, for ever."""
        self._known: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()
        self._taken: dict[Any, _Known] = {}
        """Of connections that are taken; a weak dictionary takes three times as long for each look."""
        self._releases: set[asyncio.Task[None]] = set()

    async def acquire(self) -> Any:
        """See AsyncConnections.acquire."""
        connection, turn = None, False
        try:
            with self._deadlines.wait():
                turn = await self._turns.acquire()
                if self._closing:
                    raise StoreUnavailableError(f"the store on {self._url} is being closed")
                pool = self._pool or await self._open()
                connection = await pool.acquire()
                known = self._known.get(connection)
                if known is None or known.session != connection.thread_id():
                    known = await self._get_to_know(connection)
                if not connection.get_autocommit():
                    await connection.autocommit(True)  # type: ignore[no-untyped-call]
                    known.changed = self._settings is None
                self._taken[connection] = known
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

    async def _get_to_know(self, connection: Any) -> _Known:
        cursor = connection.cursor(Cursor)
        await cursor.execute("SELECT @@max_allowed_packet")
        known = self._known[connection] = _Known(connection.thread_id(), *await cursor.fetchone())
        if connection.character_set_name() != UNICODE:
            known.prepared = dict.fromkeys(PREPARED)
        return known

    def release(self, connection: Any) -> Awaitable[None] | None:
        """See AsyncConnections.release."""
        if not self._taken[connection].changed:
            self._put(connection)
            return None
        task = asyncio.ensure_future(self._restore(connection))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        return asyncio.shield(task)

    async def _restore(self, connection: Any) -> None:
        self._taken[connection].changed = False
        try:
            if connection.connected:
                async with asyncio.timeout(self._timeout):
                    await connection.autocommit(False)
        except LOST:
            connection.close()
        finally:
            self._put(connection)

    def _put(self, connection: Any) -> None:
        self._taken.pop(connection, None)
        if self._pool is not None:
            self._pool.release(connection)
        # else it came back too late, and was hung up with its pool.
        self._turns.release()

    def attune(self, connection: Any, *, in_transaction: bool) -> tuple[Statement, ...]:
        """See AsyncConnections.attune. A pool of somebody else's does as it was told."""
        known = self._taken[connection]
        if self._settings is None or known.hasty is not in_transaction:
            return ()
        known.hasty = not in_transaction
        return (patience(None if in_transaction else self._timeout),)

    async def send(self, connection: Any, reply: Reply) -> None:
        """See AsyncConnections.send. asyncmy's connections all take several statements at once."""
        known, statements = self._taken[connection], reply.statements
        first = statements[0]
        if first.name in PREPARED and len(statements) == 1 and size_of(first) < known.largest:
            prepared = known.prepared.get(first.name)
            if prepared is None and first.name not in known.prepared:
                prepared = await self._prepare(known, connection, first)
            if prepared is not None:
                try:
                    with self._deadlines.wait():
                        result = await prepared.execute(first.parameters)
                    reply.take((), result.insert_id, result.affected_rows)
                    return
                except MySQLError as error:
                    if error.args[0] not in FORGOTTEN:
                        raise
                    known.prepared[first.name] = None
        text = "; ".join([text_of(statement) for statement in statements])
        if len(text) >= known.largest:
            raise too_large()
        cursor = connection.cursor(Cursor)
        with self._deadlines.wait():
            await cursor.execute(text)
            while True:
                reply.take(await cursor.fetchall() if cursor.description else (), cursor.lastrowid, cursor.rowcount)
                if reply.answered == len(statements):
                    return
                await cursor.nextset()

    async def _prepare(self, known: _Known, connection: Any, statement: Statement) -> Any:
        """None where the server does not take it: as a text it will say why, or have room."""
        prepared = None
        try:
            with self._deadlines.wait():
                prepared = await connection.prepare(statement.text % (("?",) * len(statement.parameters)))
        except MySQLError as error:
            failure = self.failure(error)
            if failure is None or failure.code is None:
                raise
        known.prepared[statement.name] = prepared
        return prepared

    def largest(self, connection: Any) -> int:
        """See AsyncConnections.largest."""
        return self._taken[connection].largest

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
        pool = self._pool
        if self._settings is not None and pool is not None:
            self._closing = True
            pool.close()
            try:
                # It waits until every connection has come back, and says goodbye on it.
                async with asyncio.timeout(self._timeout):
                    await pool.wait_closed()
            except TimeoutError:
                pool.terminate()
            finally:
                self._pool, self._closing = None, False
