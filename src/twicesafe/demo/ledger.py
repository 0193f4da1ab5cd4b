"""The ledger: one table of charges, append-only. What counts in the demo is how many rows a cart has.

Each lane keeps its own in a file of its own, so that neither waits for the other's transactions.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from twicesafe.demo.lanes import Lane
from twicesafe.errors import ConfigurationError

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS charges (
    id INTEGER PRIMARY KEY,
    shopper TEXT NOT NULL,
    cart TEXT NOT NULL,
    amount INTEGER NOT NULL, -- cents
    request_id TEXT NOT NULL,
    server INTEGER NOT NULL, -- process id
    at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;
CREATE INDEX IF NOT EXISTS charges_by_shopper ON charges (shopper, id);
"""

INSERT: Final = "INSERT INTO charges (shopper, cart, amount, request_id, server) VALUES (?, ?, ?, ?, ?) RETURNING id"

SHOWN: Final = 200
"""How many of a shopper's charges are shown: the latest."""


class Charge(NamedTuple):
    """One row. `amount` is in cents, `at` in UTC."""

    id: int
    cart: str
    amount: int
    request_id: str
    server: int
    at: str


def ledger_file(lane: Lane, file: Path) -> Path:
    """Where a lane keeps its ledger: the safe one in `file`, the naive one beside it."""
    return file if lane is Lane.SAFE else file.with_stem(f"{file.stem}-{lane}")


class Ledger:
    """Makes a ledger where there is none, and reads it while others write: a reader waits for nobody.

    ConfigurationError where the file can be no ledger.
    """

    def __init__(self, file: Path) -> None:
        try:
            with closing(sqlite3.connect(file)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(SCHEMA)
        except sqlite3.Error as error:
            raise ConfigurationError(f"the ledger cannot be kept in {file}: {error}") from error
        self._connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)

    def charges(self, shopper: str) -> list[Charge]:
        """The shopper's charges, oldest first."""
        rows = self._connection.execute(
            "SELECT id, cart, amount, request_id, server, at FROM charges WHERE shopper = ? ORDER BY id DESC LIMIT ?",
            (shopper, SHOWN),
        ).fetchall()
        return [Charge(*row) for row in reversed(rows)]

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()
