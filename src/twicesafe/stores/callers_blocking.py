"""The caller's connection, in blocking calls: see twicesafe.stores.callers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from twicesafe.stores.callers import (
    Spoken,
    answer,
    check_psycopg,
    check_pymysql,
    check_sqlite,
    django_wrapper,
    driven,
    in_django,
    in_sqlalchemy,
    is_duplicate,
    known,
    refuse,
)
from twicesafe.stores.mysql import text_of
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.steps import Rows, Statement, Steps

R = TypeVar("R")


def run(connection: Any, steps: Callable[[Queries], Steps[R]]) -> R:
    """Run steps to their end in the transaction of the caller's connection.

    NotInTransactionError, with nothing sent, where it has none and begins none by itself; ConfigurationError for what
    is no connection. What the driver raises goes through.
    """
    library, by_await = known(connection)
    if library == "django" or isinstance(connection, str):
        return in_django(django_wrapper(connection), partial(driven, steps))
    if library is None or by_await:
        raise refuse(connection, asynchronous=False)
    if library == "sqlalchemy":
        return in_sqlalchemy(connection, partial(driven, steps))
    spoken, check, perform = _DRIVERS[library]
    check(connection)
    return driven(steps, spoken, partial(perform, connection))


def _on_sqlite(connection: Any, statement: Statement) -> Rows:
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        cursor.execute(statement.text, statement.parameters)
        return answer(cursor, statement)
    finally:
        cursor.close()


def _on_psycopg(connection: Any, statement: Statement) -> Rows:
    with connection.cursor() as cursor:
        cursor.row_factory = as_they_are
        cursor.execute(statement.text, statement.parameters)
        return answer(cursor, statement)


def as_they_are(_cursor: object) -> Callable[[Any], Any]:
    """A row factory of psycopg's."""
    return tuple


def _on_pymysql(connection: Any, statement: Statement) -> Rows:
    with connection.cursor() as cursor:
        try:
            cursor.execute(text_of(statement))
        except Exception as error:
            if statement.writes and is_duplicate(error):
                return ()
            raise
        return answer(cursor, statement)


_DRIVERS: Final[dict[str, tuple[Spoken, Callable[[Any], None], Callable[[Any, Statement], Rows]]]] = {
    "sqlite3": (Spoken(Dialect.SQLITE, Placeholder.QUESTION_MARK), check_sqlite, _on_sqlite),
    "psycopg": (Spoken(Dialect.POSTGRESQL, Placeholder.PERCENT), check_psycopg, _on_psycopg),
    "pymysql": (Spoken(Dialect.MYSQL, Placeholder.PERCENT), check_pymysql, _on_pymysql),
}
