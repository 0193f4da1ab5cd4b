"""SQLite keeps the contract, by both kinds of store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import CHECKS, ManualClock, Outcome, StoreUnderTest, check_store
from twicesafe.testing.check import STATEMENTS, Check

WITHOUT = {STATEMENTS}
"""Nothing can be put between a claim's statements from outside, for they are performed while writers are kept out; the
tests of the steps do it from inside."""

EFFECT = "INSERT INTO ledger (name) VALUES (?)"


def write(connection: sqlite3.Connection, name: str) -> None:
    """An effect, in a handler's transaction."""
    connection.execute(EFFECT, (name,))


async def awrite(connection: Any, name: str) -> None:
    """The same, by aiosqlite."""
    await connection.execute(EFFECT, (name,))


def on_files(
    folder: Path, kind: type[SqliteStore | AsyncSqliteStore], other: type[SqliteStore | AsyncSqliteStore]
) -> Callable[[ManualClock], StoreUnderTest]:
    """Makes stores of one kind, each on a file of its own, with one of the other kind beside it."""
    numbers = count()

    def make(clock: ManualClock) -> StoreUnderTest:
        path = folder / f"{next(numbers)}.db"
        ledger = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
        ledger.execute("CREATE TABLE ledger (name TEXT NOT NULL)")

        def effects(name: str) -> int:
            found: int = ledger.execute("SELECT count(*) FROM ledger WHERE name = ?", (name,)).fetchone()[0]
            return found

        return StoreUnderTest(
            store=kind(path, clock=clock),
            write_effect=write if kind is SqliteStore else awrite,
            count_effects=effects,
            elsewhere=lambda: other(path, clock=clock),
            close=ledger.close,
        )

    return make


@pytest.mark.parametrize("kinds", [(SqliteStore, AsyncSqliteStore), (AsyncSqliteStore, SqliteStore)],
                         ids=["blocking", "asyncio"])  # fmt: skip
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_sqlite_keeps_its_promises(tmp_path: Path, kinds: tuple[Any, Any], check: Check) -> None:
    """B1, B4, B5, B6, C1, C2, C4, C8, D1, D2, D4, D6, F6, F8, G1, H2, A3, A4, A7, K: the contract holds on a file."""
    [result] = check_store(on_files(tmp_path, *kinds), only=[check.name])
    applies = not WITHOUT.intersection(check.needs)
    assert result.outcome is (Outcome.PASSED if applies else Outcome.NOT_APPLICABLE), result.reason
