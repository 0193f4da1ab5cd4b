"""Counts effects: by a function of the test's, or by SQL on a connection of whichever kind the test has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from inspect import isawaitable
from typing import Any, TypeAlias, cast

from twicesafe.errors import ConfigurationError

Count: TypeAlias = Callable[[], int | Awaitable[int]] | str
"""A function that gives how many effects there are, or a SELECT whose first column is that."""


class EffectCounter:
    """Counts what there is now. `connection` belongs to SQL: it is rolled back after each look, to see what others do.

    It may be a DB-API connection, Django's, an Engine, Connection or Session of SQLAlchemy's; and with `acount` an
    asynchronous one of these, or of asyncpg, psycopg, aiosqlite or asyncmy.
    """

    def __init__(self, count: Count, connection: Any = None) -> None:
        if isinstance(count, str) != (connection is not None):
            raise ConfigurationError("effects are counted by a function alone, or by SQL and a connection for it")
        self._count = count
        self._connection = connection
        self.shown = count if isinstance(count, str) else getattr(count, "__qualname__", repr(count))

    def count(self) -> int:
        """How many there are. ConfigurationError where that has to be awaited."""
        found = blocking_count(self._connection, self._count) if isinstance(self._count, str) else self._count()
        if isawaitable(found):
            if hasattr(found, "close"):
                found.close()
            raise ConfigurationError("this count has to be awaited: use `async with`")
        return found

    async def acount(self) -> int:
        """count, for asyncio. What blocks is taken as well."""
        if isinstance(self._count, str):
            return await async_count(self._connection, self._count)
        found = self._count()
        return await found if isawaitable(found) else found


def blocking_count(connection: Any, sql: str) -> int:
    """The first column of the first row."""
    if hasattr(connection, "exec_driver_sql"):
        return _rolled_back(connection, _whole(connection.exec_driver_sql(sql).scalar()))
    if hasattr(connection, "cursor"):
        cursor = connection.cursor()
        try:
            cursor.execute(sql)
            counted = _first(cursor.fetchone())
        finally:
            cursor.close()
        return _rolled_back(connection, counted)
    if callable(getattr(connection, "connection", None)):
        return _rolled_back(connection, _whole(connection.connection().exec_driver_sql(sql).scalar()))
    if hasattr(connection, "connect"):
        with cast("AbstractContextManager[Any]", connection.connect()) as opened:
            return blocking_count(opened, sql)
    raise _strange(connection)


async def async_count(connection: Any, sql: str) -> int:
    """The same, by whatever kind of connection it is."""
    if hasattr(connection, "run_sync"):
        return cast("int", await connection.run_sync(lambda within: blocking_count(within, sql)))
    if hasattr(connection, "fetchval"):
        return _whole(await connection.fetchval(sql))
    if hasattr(connection, "sync_engine"):
        async with cast("AbstractAsyncContextManager[Any]", connection.connect()) as opened:
            return await async_count(opened, sql)
    if not hasattr(connection, "cursor"):
        return blocking_count(connection, sql)
    cursor = connection.cursor()
    if not hasattr(cursor, "__aenter__"):
        cursor.close()
        return blocking_count(connection, sql)
    async with cursor as opened_cursor:
        await opened_cursor.execute(sql)
        counted = _first(await opened_cursor.fetchone())
    await connection.rollback()
    return counted


def _rolled_back(connection: Any, counted: int) -> int:
    # Where a test runs in a transaction of Django's, that is not for us to end.
    if not getattr(connection, "in_atomic_block", False):
        connection.rollback()
    return counted


def _first(row: Any) -> int:
    if row is None:
        return _whole(None)
    return _whole(next(iter(row.values())) if isinstance(row, Mapping) else row[0])


def _whole(counted: object) -> int:
    if not isinstance(counted, int):
        raise ConfigurationError(f"the SQL that counts effects gives a whole number, not {counted!r}")
    return counted


def _strange(connection: object) -> ConfigurationError:
    return ConfigurationError(f"nothing can be counted by a {type(connection).__name__}: pass a function that counts")
