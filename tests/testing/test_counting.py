"""Effects counted by SQL, on each kind of connection a test may have."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from twicesafe.errors import ConfigurationError
from twicesafe.testing.counting import EffectCounter
from twicesafe.testing.effects import OneEffect

SQL = "SELECT count(*) FROM charges"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with a table that is empty."""
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE charges (id INTEGER PRIMARY KEY)")
    return tmp_path / "shop.db"


@pytest.fixture
def charge(file: Path) -> Iterator[Callable[[], object]]:
    """Somebody else, who charges and commits."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield lambda: connection.execute("INSERT INTO charges DEFAULT VALUES")


def blocking(kind: str, file: Path, opened: ExitStack) -> Any:
    """A connection of this kind."""
    if kind == "sqlite3":
        return opened.enter_context(closing(sqlite3.connect(file)))
    if kind == "rows":
        connection = opened.enter_context(closing(sqlite3.connect(file)))
        connection.row_factory = lambda cursor, row: {"n": row[0]}
        return connection
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    opened.callback(engine.dispose)
    if kind == "engine":
        return engine
    return opened.enter_context(engine.connect() if kind == "connection" else Session(engine))


@pytest.mark.parametrize("kind", ["sqlite3", "rows", "engine", "connection", "session"])
def test_a_connection_counts_what_others_did(kind: str, file: Path, charge: Callable[[], object]) -> None:
    """R42: each look sees what was committed by then, though the connection has looked before."""
    with ExitStack() as opened:
        with OneEffect(SQL, blocking(kind, file, opened)):
            charge()
        with closing(sqlite3.connect(file)) as connection:
            assert connection.execute(SQL).fetchone() == (1,)


async def asynchronous(kind: str, file: Path, opened: AsyncExitStack) -> Any:
    """A connection of this kind, for asyncio; the last one blocks."""
    if kind == "aiosqlite":
        return await opened.enter_async_context(aiosqlite.connect(file))
    if kind == "sqlite3":
        return opened.enter_context(closing(sqlite3.connect(file)))
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
    opened.push_async_callback(engine.dispose)
    if kind == "engine":
        return engine
    return await opened.enter_async_context(engine.connect() if kind == "connection" else AsyncSession(engine))


@pytest.mark.parametrize("kind", ["aiosqlite", "sqlite3", "engine", "connection", "session"])
def test_an_asynchronous_connection_counts_what_others_did(kind: str, file: Path, charge: Callable[[], object]) -> None:
    """R42: the same for asyncio, and for a connection that blocks within it."""

    async def trial() -> int:
        async with AsyncExitStack() as opened:
            connection = await asynchronous(kind, file, opened)
            async with OneEffect(SQL, connection):
                charge()
            return await EffectCounter(SQL, connection).acount()

    assert asyncio.run(trial()) == 1


DJANGO = """
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
from django.db import connection, transaction
from twicesafe.testing.effects import OneEffect
with transaction.atomic(), connection.cursor() as cursor:
    cursor.execute("CREATE TABLE charges (id INTEGER PRIMARY KEY)")
    with OneEffect("SELECT count(*) FROM charges", connection):
        cursor.execute("INSERT INTO charges DEFAULT VALUES")
    cursor.execute("SELECT count(*) FROM charges")
    print(cursor.fetchone())
"""


def test_a_transaction_of_django_is_left_alone() -> None:
    """R42: within a transaction of Django's that a test runs in, nothing is rolled back by a look."""
    ran = subprocess.run([sys.executable, "-c", DJANGO], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "(1,)", ran.stderr


@pytest.mark.parametrize(
    ("count", "connection", "said"),
    [
        (SQL, None, "by SQL and a connection"),
        (lambda: 1, sqlite3, "by a function alone"),
        (SQL, object(), "nothing can be counted by a object"),
        ("SELECT 'many'", sqlite3.connect(":memory:"), "a whole number, not 'many'"),
        ("SELECT 1 WHERE 0", sqlite3.connect(":memory:"), "a whole number, not None"),
    ],
)
def test_what_counts_nothing_is_refused(count: Any, connection: Any, said: str) -> None:
    """R42: a count that is none is a mistake of the test's, not an effect too few."""
    try:
        with pytest.raises(ConfigurationError, match=said):
            EffectCounter(count, connection).count()
    finally:
        if isinstance(connection, sqlite3.Connection):
            connection.close()


def test_a_count_to_be_awaited_needs_an_asynchronous_context() -> None:
    """R42: a coroutine is not taken for a number, nor left behind."""

    async def count() -> int:
        return 1

    with pytest.raises(ConfigurationError, match="use `async with`"):
        OneEffect(count).__enter__()
