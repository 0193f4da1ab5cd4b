"""The caller's own connection, whichever driver's or library's it is: statements in a transaction that is not ours.

Theory of operation. What a connection is follows from the modules that its classes are defined in, so no driver has to
be imported, or be installed, that the caller does not use. Nothing here begins or ends a transaction. A connection that
commits each statement by itself is refused before anything is sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, Final, NamedTuple, TypeVar

from twicesafe.errors import ConfigurationError, NotInTransactionError
from twicesafe.stores import mysql, postgresql
from twicesafe.stores.sql.messages import message_queries
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.steps import Row, Rows, Statement, Step, Steps, drive

R = TypeVar("R")

DUPLICATE: Final = 1062
"""MySQL's number for a unique key that is there already. The statement wrote nothing, and the transaction goes on."""

ALONE: Final = (
    "this connection commits each statement by itself, so what is written would be there without your effect: begin a "
    "transaction first, and commit it with the effect"
)

PLACEHOLDERS: Final = {
    "pyformat": Placeholder.PERCENT,
    "format": Placeholder.PERCENT,
    "numeric_dollar": Placeholder.NUMBER,
    "qmark": Placeholder.QUESTION_MARK,
}
"""By SQLAlchemy's name of a style."""

SQLALCHEMYS: Final = {
    "postgresql": Dialect.POSTGRESQL,
    "sqlite": Dialect.SQLITE,
    "mysql": Dialect.MYSQL,
    "mariadb": Dialect.MYSQL,
}
DJANGOS: Final = {"postgresql": Dialect.POSTGRESQL, "sqlite": Dialect.SQLITE}

LIBRARIES: Final = frozenset(
    {"sqlite3", "aiosqlite", "asyncpg", "psycopg", "pymysql", "asyncmy", "sqlalchemy", "django"}
)


class Spoken(NamedTuple):
    """What a connection takes."""

    dialect: Dialect
    placeholder: Placeholder


_KINDS: Final[dict[type, tuple[str | None, bool]]] = {}
"""What is known of a class: its library, and whether it is for asyncio."""


def known(connection: Any) -> tuple[str | None, bool]:
    """Whose connection it is, and whether it is one for asyncio."""
    kind = type(connection)
    found = _KINDS.get(kind)
    if found is None:
        packages = [one.__module__.partition(".")[0] for one in kind.__mro__]
        library = next((package for package in packages if package in LIBRARIES), None)
        by_await = library in ("aiosqlite", "asyncpg", "asyncmy")
        if library == "sqlalchemy":
            by_await = hasattr(connection, "run_sync")
        elif library == "psycopg":
            by_await = iscoroutinefunction(connection.commit)
        found = _KINDS[kind] = library, by_await
    return found


def refuse(connection: Any, *, asynchronous: bool) -> ConfigurationError:
    """Why this is no connection to write with."""
    kind = type(connection)
    library, by_await = known(connection)
    if library is not None and by_await and not asynchronous:
        return ConfigurationError(f"{kind.__name__} is for asyncio: use the class with Async in its name, and await it")
    if library is not None and asynchronous:
        return ConfigurationError(f"{kind.__name__} blocks: use the class without Async in its name")
    return ConfigurationError(
        f"{kind.__module__}.{kind.__name__} is no connection of SQLite, PostgreSQL or MySQL that twicesafe knows: pass "
        "one of sqlite3, aiosqlite, asyncpg, psycopg, PyMySQL, asyncmy or SQLAlchemy, or Django's, or its alias"
    )


def alone() -> NotInTransactionError:
    """The caller's connection is in no transaction."""
    return NotInTransactionError(ALONE)


def driven(steps: Callable[[Queries], Steps[R]], spoken: Spoken, perform: Callable[[Statement], Rows]) -> R:
    """Run steps to their end on a connection that takes `spoken`, by what performs a statement on it."""

    def one(step: Step) -> Rows:
        assert type(step) is Statement
        return perform(step)

    return drive(steps(message_queries(*spoken)), one)


def plain(rows: Sequence[Any]) -> Rows:
    """Rows as sequences, whatever the caller has its rows made into."""
    return [tuple(row.values()) if isinstance(row, dict) else row for row in rows]


def answer(cursor: Any, statement: Statement) -> Rows:
    """What a cursor of a blocking driver answered."""
    if statement.returns:
        return plain(cursor.fetchall())
    return written(cursor.rowcount)


def written(count: int) -> Rows:
    """The answer of a statement that writes so many rows and returns none."""
    none: Row = ()
    return (none,) * count


def is_duplicate(error: BaseException) -> bool:
    """Whether MySQL found its unique key there. Other databases are asked in a way that makes it no error."""
    number: object = error.args[0] if error.args else None
    return number == DUPLICATE


def is_conflict(error: BaseException) -> bool:
    """Whether the database ended a transaction for another's sake: it was rolled back, and may be begun again."""
    told = getattr(error, "orig", None) or error.__cause__ or error
    number: object = told.args[0] if told.args else None
    return getattr(told, "sqlstate", None) in postgresql.AGAIN or number in mysql.AGAIN


# --- what each library says of a transaction -------------------------------------------------------------------------


def check_sqlite(connection: Any) -> None:
    """NotInTransactionError for sqlite3's (and aiosqlite's) in a mode in which it begins none by itself."""
    if connection.in_transaction:
        return
    # Since 3.12 there is another attribute, which is none of the modes by default.
    autocommit = getattr(connection, "autocommit", -1)
    if autocommit is True or (autocommit is not False and connection.isolation_level is None):
        raise alone()


def check_psycopg(connection: Any) -> None:
    """NotInTransactionError for a connection with autocommit outside of a transaction."""
    idle = 0
    if connection.autocommit and connection.info.transaction_status == idle:
        raise alone()


def check_pymysql(connection: Any) -> None:
    """NotInTransactionError for PyMySQL's and asyncmy's with autocommit outside of a transaction."""
    in_transaction = 1
    if connection.get_autocommit() and not connection.server_status & in_transaction:
        raise alone()


def check_asyncpg(connection: Any) -> None:
    """NotInTransactionError outside of a transaction: asyncpg begins none by itself."""
    if not connection.is_in_transaction():
        raise alone()


# --- SQLAlchemy and Django -------------------------------------------------------------------------------------------


def in_sqlalchemy(connection: Any, act: Callable[[Spoken, Callable[[Statement], Rows]], R]) -> R:
    """Call `act` with what a Session's or a Connection's takes, and with what performs a statement on it."""
    inner = connection if hasattr(connection, "exec_driver_sql") else connection.connection()
    dialect, placeholder = SQLALCHEMYS.get(inner.dialect.name), PLACEHOLDERS.get(inner.dialect.paramstyle)
    if dialect is None or placeholder is None:
        raise ConfigurationError(f"messages are kept in {', '.join(SQLALCHEMYS)}, not in {inner.dialect.name}")
    if dialect is Dialect.SQLITE:
        check_sqlite(inner.connection.driver_connection)
    elif _commits_by_itself(inner):
        raise alone()

    def perform(statement: Statement) -> Rows:
        try:
            return answer(inner.exec_driver_sql(statement.text, statement.parameters), statement)
        except Exception as error:
            # Its parameters are the message's data.
            error.hide_parameters = True  # type: ignore[attr-defined]  # SQLAlchemy's have it
            if dialect is Dialect.MYSQL and is_duplicate(getattr(error, "orig", None) or error):
                return ()
            raise

    return act(Spoken(dialect, placeholder), perform)


def _commits_by_itself(connection: Any) -> bool:
    driver = connection.connection.dbapi_connection
    detect = getattr(connection.dialect, "detect_autocommit_setting", None)
    if detect is not None:
        return bool(detect(driver))
    autocommit = getattr(driver, "get_autocommit", None)
    return bool(driver.autocommit if autocommit is None else autocommit())


def django_wrapper(connection: Any) -> Any:
    """The connection behind an alias, or None where it is no matter of Django's."""
    if isinstance(connection, str):
        database = sys.modules.get("django.db")
        if database is None:
            raise ConfigurationError(f"{connection!r} is no connection, nor an alias of Django's, which is not in use")
        return database.connections[connection]
    return connection if known(connection)[0] == "django" else None


def in_django(wrapper: Any, act: Callable[[Spoken, Callable[[Statement], Rows]], R]) -> R:
    """Call `act` with what a connection of Django's takes, and with what performs a statement on it."""
    dialect = DJANGOS.get(wrapper.vendor)
    if dialect is None:
        raise ConfigurationError(f"under Django messages are kept in {' and '.join(DJANGOS)}, not in {wrapper.vendor}")
    if not wrapper.in_atomic_block and wrapper.get_autocommit():
        raise alone()

    def perform(statement: Statement) -> Rows:
        # Not by `cursor()`, which shows parameters to Django's log of queries.
        with wrapper.wrap_database_errors:
            cursor = wrapper.create_cursor()
            try:
                cursor.execute(statement.text, statement.parameters)
                return answer(cursor, statement)
            finally:
                cursor.close()

    # Its cursors on SQLite take %s.
    return act(Spoken(dialect, Placeholder.PERCENT), perform)
