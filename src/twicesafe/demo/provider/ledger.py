"""The provider's books, in a SQLite file: what it charged, which keys it remembers, which faults are to strike.

Nothing here is unique but a charge's own number: two charges under one key are two rows, for whoever counts them.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from twicesafe.demo.provider.faults import ProviderFault

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS charges (
    number TEXT NOT NULL PRIMARY KEY,
    key TEXT, -- none was sent
    reference TEXT NOT NULL,
    amount INTEGER NOT NULL -- cents
) STRICT;
CREATE INDEX IF NOT EXISTS charges_by_key ON charges (key);
CREATE TABLE IF NOT EXISTS keys (
    key TEXT NOT NULL PRIMARY KEY,
    number TEXT NOT NULL,
    reference TEXT NOT NULL,
    amount INTEGER NOT NULL,
    at REAL NOT NULL -- when the charge was made, in seconds
) STRICT;
CREATE TABLE IF NOT EXISTS armed (
    id INTEGER PRIMARY KEY,
    reference TEXT, -- of the charge that is to meet it; without one the next that comes
    fault TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS armed_by_reference ON armed (reference, id);
CREATE TABLE IF NOT EXISTS struck (fault TEXT NOT NULL PRIMARY KEY, times INTEGER NOT NULL) STRICT;
"""

WINDOW: Final = timedelta(hours=24)
"""For how long keys are remembered unless it is said otherwise: as long as the best-known provider remembers them."""

BUSY: Final = 30.0
"""Seconds it waits for the file, which has no other writers to speak of."""


class Order(NamedTuple):
    """What is to be charged. `reference` is the caller's own name for it; `amount` is in cents."""

    reference: str
    amount: int


class Charge(NamedTuple):
    """What was charged."""

    number: str
    reference: str
    amount: int


class KeyMisusedError(Exception):
    """The key is remembered with another order."""


class ProviderLedger:
    """The books in `file`. Safe to share between threads, and to read by another process.

    `window` is for how long a key is remembered, from when its charge was made, by `clock` in seconds.
    """

    def __init__(self, file: Path, window: timedelta = WINDOW, clock: Callable[[], float] = time.time) -> None:
        self._window = window.total_seconds()
        self._clock = clock
        self._turn = threading.Lock()
        self._connection = sqlite3.connect(file, timeout=BUSY, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.executescript(SCHEMA)

    def close(self) -> None:
        """Give the file back."""
        with self._turn:
            self._connection.close()

    # --- charges ------------------------------------------------------------------------------------------------------

    def charge(self, key: str | None, order: Order) -> tuple[Charge, bool]:
        """Charge, or give what was charged under `key` within the window; True says which. KeyMisusedError."""
        with self._transaction() as connection:
            now = self._clock()
            query = "SELECT number, reference, amount FROM keys WHERE key = ? AND at > ?"
            found = connection.execute(query, (key, now - self._window)).fetchone()
            if found is not None:
                if Order(*found[1:]) != order:
                    raise KeyMisusedError
                return Charge(*found), True
            made = Charge(uuid4().hex, *order)
            connection.execute("INSERT INTO charges VALUES (?, ?, ?, ?)", (made.number, key, *order))
            if key is not None:
                connection.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?)", (key, *made, now))
            return made, False

    def under(self, key: str) -> list[Charge]:
        """What was charged under `key`, whether or not it is still remembered."""
        return [Charge(*row) for row in self._rows("SELECT number, reference, amount FROM charges WHERE key = ?", key)]

    def charges(self) -> list[Charge]:
        """All of them."""
        return [Charge(*row) for row in self._rows("SELECT number, reference, amount FROM charges")]

    # --- faults -------------------------------------------------------------------------------------------------------

    def arm(self, fault: ProviderFault, reference: str | None = None) -> None:
        """Let the next charge meet `fault`, or the next with this `reference`; one after the other."""
        self._rows("INSERT INTO armed (reference, fault) VALUES (?, ?)", reference, fault)

    def arm_all(self, faults: Iterable[tuple[ProviderFault, str]]) -> None:
        """The same for many, each with its reference, in this order."""
        with self._transaction() as connection:
            connection.executemany("INSERT INTO armed (fault, reference) VALUES (?, ?)", faults)

    def strike(self, reference: str) -> ProviderFault | None:
        """The fault that a charge with this reference has to meet now. It counts as struck, and strikes once."""
        with self._transaction() as connection:
            query = "SELECT id, fault FROM armed WHERE reference = ? OR reference IS NULL ORDER BY id LIMIT 1"
            found = connection.execute(query, (reference,)).fetchone()
            if found is None:
                return None
            connection.execute("DELETE FROM armed WHERE id = ?", found[:1])
            connection.execute(
                "INSERT INTO struck VALUES (?, 1) ON CONFLICT (fault) DO UPDATE SET times = times + 1", found[1:]
            )
            return ProviderFault(found[1])

    def calm(self) -> None:
        """No fault strikes any more."""
        self._rows("DELETE FROM armed")

    def struck(self) -> Counter[ProviderFault]:
        """How often each fault struck."""
        found: Counter[ProviderFault] = Counter()
        for fault, times in self._rows("SELECT fault, times FROM struck"):
            found[ProviderFault(fault)] = times
        return found

    # --- how ----------------------------------------------------------------------------------------------------------

    def _rows(self, query: str, *values: str | None) -> list[Any]:
        with self._turn:
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
