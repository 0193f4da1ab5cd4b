"""Records in MySQL or MariaDB by PyMySQL, beside your own tables, for blocking code in any number of threads.

PyMySQL has no pool, so here is a small one. Round trips are the cost: statements that need no answer first travel
together, BEGIN with the lock of the key and COMMIT with the record.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from threading import Lock
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor

from twicesafe.stores.connecting import (
    DEFAULT_POOL_SIZE,
    DEFAULT_TIMEOUT,
    no_connection,
    no_entry,
    seconds,
    without_password,
)
from twicesafe.stores.forks import keep_for_ever, mind_forks
from twicesafe.stores.mysql import (
    Address,
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
from twicesafe.stores.mysql_sync import MysqlStore
from twicesafe.stores.steps import Statement

__all__ = ["PymysqlStore"]

Connect: TypeAlias = Callable[[], "pymysql.connections.Connection[Any]"]

LOST: Final = (OSError, pymysql.MySQLError)


class PymysqlStore(MysqlStore):
    """A Store in the database that `database` leads to: a mysql:// URL, or a function that makes a connection.

    The store keeps at most `pool_size` connections, made when they are needed and closed with it. Those that your own
    function makes are as you want them; without the client flag MULTI_STATEMENTS a transaction takes six round trips
    more. `timeout` bounds each wait, for a connection and for a statement of the store's. `now_sql` is an SQL
    expression that replaces the database's clock; only tests have a reason to set it.
    """

    def __init__(
        self,
        database: str | Connect,
        *,
        pool_size: int = DEFAULT_POOL_SIZE,
        timeout: timedelta = DEFAULT_TIMEOUT,
        now_sql: str | None = None,
    ) -> None:
        url = without_password(database) if isinstance(database, str) else "mysql://..."
        connections = PymysqlConnections(database, url, pool_size, seconds(timeout))
        super().__init__(connections, queries(now_sql), url, seconds(timeout))


class PymysqlConnections:
    """See Connections."""

    def __init__(self, database: str | Connect, url: str, pool_size: int, timeout: float) -> None:
        check_pool_size(pool_size)
        self._own = isinstance(database, str)
        self._connect = _connect(address(database), timeout) if isinstance(database, str) else database
        self._url = url
        self._timeout = timeout
        self._closed = False
        self._pool_size = pool_size
        self._places = _Places(pool_size)
        self._largest: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._hasty: WeakSet[Any] = WeakSet()
        """Connections to the store's own address that wait for locks as the store wants to."""
        mind_forks(self)

    def forked(self) -> None:
        """See Forked."""
        keep_for_ever(self._places)
        self._places = _Places(self._pool_size)

    def acquire(self) -> Any:
        """See Connections.acquire."""
        try:
            connection = self._places.take(self._timeout)
        except TimeoutError:
            raise no_connection(self._timeout) from None
        try:
            if connection is not None and not _alive(connection):
                self.broken(connection)
                connection = None
            if connection is None:
                connection = self._connect()
                cursor = connection.cursor(Cursor)
                cursor.execute("SELECT @@max_allowed_packet")
                [(self._largest[connection],)] = cursor.fetchall()
                if self._own:
                    # From here on they are a handler's, which may take as long as it likes.
                    _wait_for_ever(connection)
            if not connection.get_autocommit():
                connection.autocommit(True)
        except BaseException as error:
            if connection is not None:
                self.broken(connection)
            self._places.give_back(None)
            if isinstance(error, LOST):
                raise no_entry(self._url, error) from error
            raise
        return connection

    def release(self, connection: Any) -> None:
        """See Connections.release."""
        if self._closed:
            self.broken(connection)
        self._places.give_back(connection if connection.open else None)

    def attune(self, connection: Any, *, in_transaction: bool) -> tuple[Statement, ...]:
        """See Connections.attune. Connections that somebody else makes do as they were told."""
        if not self._own or (connection in self._hasty) is not in_transaction:
            return ()
        (self._hasty.discard if in_transaction else self._hasty.add)(connection)
        return (patience(None if in_transaction else self._timeout),)

    def send(self, connection: Any, reply: Reply) -> None:
        """See Connections.send. PyMySQL's time-outs are everybody's, so they are the store's for this while only."""
        texts = [text_of(statement) for statement in reply.statements]
        if sum(map(len, texts)) + 2 * len(texts) >= self._largest[connection]:
            raise too_large()
        cursor = connection.cursor(Cursor)
        usual = connection._read_timeout, connection._write_timeout  # noqa: SLF001 - see above
        connection._read_timeout = connection._write_timeout = self._timeout  # noqa: SLF001 - see above
        try:
            if connection.client_flag & CLIENT.MULTI_STATEMENTS:
                cursor.execute("; ".join(texts))
                _take(cursor, reply)
                while reply.answered < len(texts):
                    cursor.nextset()
                    _take(cursor, reply)
            else:
                for text in texts:
                    cursor.execute(text)
                    _take(cursor, reply)
        finally:
            connection._read_timeout, connection._write_timeout = usual  # noqa: SLF001 - see above

    def largest(self, connection: Any) -> int:
        """See Connections.largest."""
        return self._largest[connection]

    def failure(self, error: Exception) -> Failure | None:
        """See Connections.failure."""
        if isinstance(error, pymysql.MySQLError):
            return failure_of(error.args[0] if error.args else None, str(error.args[-1] if error.args else error))
        return Failure(None, str(error) or type(error).__name__) if isinstance(error, OSError) else None

    def broken(self, connection: Any) -> None:
        """See Connections.broken."""
        connection._force_close()  # noqa: SLF001 - close() would say good-bye, and wait

    def close(self) -> None:
        """See Connections.close. What is in use is closed when it comes back."""
        self._closed = True
        for connection in self._places.empty():
            if connection.open:
                connection.close()


class _Places:
    """So many connections, or places for them, given to threads in the order in which they ask.

    A queue would give one to whoever gives back and asks again, for as long as he does, before those who wait wake up.
    """

    def __init__(self, count: int) -> None:
        self._lock = Lock()
        self._free: list[Any] = [None] * count
        self._waiting: deque[Future[Any]] = deque()

    def take(self, timeout: float) -> Any:
        """A connection, or None for one to be made. TimeoutError."""
        with self._lock:
            if self._free:
                return self._free.pop()
            mine: Future[Any] = Future()
            self._waiting.append(mine)
        try:
            return mine.result(timeout)
        except BaseException:
            with self._lock:
                if not mine.done():
                    self._waiting.remove(mine)
                    raise
            # It came at the last moment.
            self.give_back(mine.result())
            raise

    def give_back(self, connection: Any) -> None:
        """For the first who waits, or else the next who asks."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set_result(connection)
            else:
                self._free.append(connection)

    def empty(self) -> list[Any]:
        """The connections that are free; their places stay."""
        with self._lock:
            found = [connection for connection in self._free if connection is not None]
            self._free = [None] * len(self._free)
        return found


def _take(cursor: Any, reply: Reply) -> None:
    reply.take(cursor.fetchall() if cursor.description else (), cursor.lastrowid or 0, cursor.rowcount)


def _alive(connection: Any) -> bool:
    """Whether nothing has come that nobody asked for: a server that closes says so, or is gone."""
    if not connection.open:
        return False
    poll = select.poll()
    poll.register(connection._sock, select.POLLIN)  # noqa: SLF001 - nothing else tells without a round trip
    return not poll.poll(0)


def _wait_for_ever(connection: Any) -> None:
    connection._read_timeout = connection._write_timeout = None  # noqa: SLF001 - there is no public name for them


def _connect(where: Address, timeout: float) -> Connect:
    settings = settings_of(where, timeout) | {
        "client_flag": CLIENT.MULTI_STATEMENTS,
        # The time to connect is the network's only: a server may take a connection and say nothing.
        "read_timeout": timeout,
        "write_timeout": timeout,
    }
    return lambda: pymysql.connect(**settings)
