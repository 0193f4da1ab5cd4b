"""The caller's connection, under asyncio: see twicesafe.stores.callers."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from twicesafe.errors import ConfigurationError
from twicesafe.stores.callers import (
    Spoken,
    answer,
    check_asyncpg,
    check_psycopg,
    check_pymysql,
    check_sqlite,
    django_wrapper,
    driven,
    in_django,
    in_sqlalchemy,
    is_duplicate,
    known,
    plain,
    refuse,
    written,
)
from twicesafe.stores.callers_blocking import as_they_are
from twicesafe.stores.mysql import text_of
from twicesafe.stores.sql.messages import message_queries
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.steps import Rows, Statement, Step, Steps, adrive

R = TypeVar("R")


async def arun(connection: Any, steps: Callable[[Queries], Steps[R]]) -> R:
    """See callers_blocking.run."""
    library, by_await = known(connection)
    if library == "django" or isinstance(connection, str):
        # In the thread where Django keeps its connections of this task.
        asgiref = sys.modules.get("asgiref.sync")
        if asgiref is None:
            raise ConfigurationError(f"{connection!r} is no connection, nor an alias of Django's, which is not in use")
        in_thread = asgiref.sync_to_async(lambda: in_django(django_wrapper(connection), partial(driven, steps)))
        in_its_thread: R = await in_thread()
        return in_its_thread
    if library is None or not by_await:
        raise refuse(connection, asynchronous=True)
    if library == "sqlalchemy":
        in_its_greenlet: R = await connection.run_sync(in_sqlalchemy, partial(driven, steps))
        return in_its_greenlet
    spoken, check, perform = _DRIVERS[library]
    check(connection)

    async def one(step: Step) -> Rows:
        assert type(step) is Statement
        return await perform(connection, step)

    return await adrive(steps(message_queries(*spoken)), one)


async def _on_aiosqlite(connection: Any, statement: Statement) -> Rows:
    if statement.returns:
        return plain(await connection.execute_fetchall(statement.text, statement.parameters))
    cursor = await connection.execute(statement.text, statement.parameters)
    try:
        return answer(cursor, statement)
    finally:
        await cursor.close()


async def _on_asyncpg(connection: Any, statement: Statement) -> Rows:
    if not statement.returns:
        status: str = await connection.execute(statement.text, *statement.parameters)
        count = status.rpartition(" ")[2]
        # Of what makes a table it tells none.
        return written(int(count) if count.isdecimal() else 0)
    rows: Rows = await connection.fetch(statement.text, *statement.parameters)
    return rows


async def _on_psycopg(connection: Any, statement: Statement) -> Rows:
    async with connection.cursor() as cursor:
        cursor.row_factory = as_they_are
        await cursor.execute(statement.text, statement.parameters)
        return await cursor.fetchall() if statement.returns else answer(cursor, statement)


async def _on_asyncmy(connection: Any, statement: Statement) -> Rows:
    async with connection.cursor() as cursor:
        try:
            await cursor.execute(text_of(statement))
        except Exception as error:
            if statement.writes and is_duplicate(error):
                return ()
            raise
        return plain(await cursor.fetchall()) if statement.returns else answer(cursor, statement)


_DRIVERS: Final[dict[str, tuple[Spoken, Callable[[Any], None], Callable[[Any, Statement], Awaitable[Rows]]]]] = {
    "aiosqlite": (Spoken(Dialect.SQLITE, Placeholder.QUESTION_MARK), check_sqlite, _on_aiosqlite),
    "asyncpg": (Spoken(Dialect.POSTGRESQL, Placeholder.NUMBER), check_asyncpg, _on_asyncpg),
    "psycopg": (Spoken(Dialect.POSTGRESQL, Placeholder.PERCENT), check_psycopg, _on_psycopg),
    "asyncmy": (Spoken(Dialect.MYSQL, Placeholder.PERCENT), check_pymysql, _on_asyncmy),
}
