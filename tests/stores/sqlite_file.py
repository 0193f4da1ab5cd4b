"""A SQLite file with records and a ledger of effects, and ways to stand behind what a store does with it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.record import Ownership
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.stores.sqlite_connection import SqliteConnection
from twicesafe.stores.sqlite_writer import Job, _Worker
from twicesafe.testing import ManualClock

SOON = timedelta(milliseconds=50)
BOUND = 60
"""Seconds after which something hangs."""


class File:
    """One file with records and a ledger, and stores on it that are closed in the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.opened: list[SqliteStore] = []
        self.store().apply_schema()
        self.plain = sqlite3.connect(path, isolation_level=None, timeout=BOUND, check_same_thread=False)
        self.plain.execute("CREATE TABLE ledger (name TEXT NOT NULL)")

    def store(self, **settings: Any) -> SqliteStore:
        """A blocking store."""
        store = SqliteStore(self.path, clock=self.clock, **settings)
        self.opened.append(store)
        return store

    def effects(self, name: str = "key") -> int:
        """Committed effects."""
        count: int = self.plain.execute("SELECT count(*) FROM ledger WHERE name = ?", (name,)).fetchone()[0]
        return count

    def is_free(self) -> bool:
        """Whether nobody holds the write lock for good."""
        self.plain.execute("BEGIN IMMEDIATE")
        self.plain.execute("ROLLBACK")
        return True

    def records(self) -> int:
        """Committed records."""
        count: int = self.plain.execute("SELECT count(*) FROM twicesafe_records").fetchone()[0]
        return count

    def run(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Another process on the file."""
        return subprocess.Popen(
            [sys.executable, "-c", program, str(self.path), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def close(self) -> None:
        """Close everything."""
        for store in self.opened:
            store.close()
        self.plain.close()


def effect(transaction: Any, name: str = "key") -> None:
    """The application's own row."""
    transaction.connection.execute("INSERT INTO ledger (name) VALUES (?)", (name,))


def claimed(transaction: Any, key: str = "key") -> Ownership:
    """Win, in a transaction."""
    found = transaction.claim(wish(key))
    assert isinstance(found, Claimed), found
    return found.ownership


async def one(store: AsyncSqliteStore, claim: Claim, *, keep_effects: bool = True) -> Claimed | Existing:
    """A whole transactional exchange."""
    async with store.transaction() as transaction:
        found = await transaction.claim(claim)
        if isinstance(found, Claimed):
            await transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key')")
            await transaction.complete(found.ownership, ANSWER, KEY, BODY, keep_effects=keep_effects)
        return found


class Blocked:
    """Knows how many jobs have found the write lock taken, and lets a test wait until so many have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waiting = 0
        self._changed = threading.Condition()
        not_begun = _Worker._not_begun

        def notice(worker: _Worker, waiting: list[Job], error: sqlite3.Error) -> list[Job]:
            with self._changed:
                self._waiting = len(waiting)
                self._changed.notify_all()
            return not_begun(worker, waiting, error)

        monkeypatch.setattr(_Worker, "_not_begun", notice)

    def wait_for(self, jobs: int) -> None:
        """Until `jobs` jobs wait for the write lock."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._waiting >= jobs, BOUND)


class Watched:
    """Counts the commits of a store's writer, and does something in their place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits = 0
        self.instead: Callable[[SqliteConnection, Callable[[SqliteConnection], Any]], Any] | None = None
        commit = SqliteConnection._commit

        def count(connection: SqliteConnection) -> Any:
            self.commits += 1
            if self.instead is not None:
                return self.instead(connection, commit)
            return commit(connection)

        monkeypatch.setattr(SqliteConnection, "_commit", count)


def failure(code: int) -> sqlite3.OperationalError:
    """What SQLite would raise."""
    error = sqlite3.OperationalError("in another language")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_ANY"
    return error
