"""The ledger of a storm whose store shares no transaction with it: somebody else's system, which is called.

It does what payment providers do: it remembers the key that each call carries, and answers a second call under a key
with what the first one made. It can do so only because all attempts at one intent derive the same key, which is what
the storm then proves: a call under another key would be a second payment, and count as one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Final, NamedTuple

from twicesafe.errors import StoreUnavailableError
from twicesafe.storm.ledger import Payment
from twicesafe.storm.ledger_sqlite import BUSY, SqliteLedger

_REMEMBERED: Final = """
CREATE TABLE IF NOT EXISTS storm_calls (
    key text NOT NULL PRIMARY KEY,
    number text NOT NULL,
    calls integer NOT NULL
)
"""


class Calls(NamedTuple):
    """How often it was called, under how many keys."""

    calls: int
    keys: int


class DownstreamLedger(SqliteLedger):
    """A Ledger that is called, not written to. It keeps what it knows in `file`."""

    async def create(self) -> None:
        """Make both tables."""
        await super().create()
        await asyncio.to_thread(self._create_calls)

    async def pay(self, key: str, number: str, payment: Payment) -> str:
        """Make one payment under `key`, or say which one was made under it before."""
        async with self._turn:
            return await asyncio.to_thread(self._pay, key, number, payment)

    async def made(self, key: str) -> str | None:
        """The payment that was made under `key`, if one was."""
        return await asyncio.to_thread(self._find, key)

    async def calls(self) -> Calls:
        """All there were."""
        return await asyncio.to_thread(self._count)

    def _create_calls(self) -> None:
        with closing(self._connect()) as connection:
            connection.execute(_REMEMBERED)

    def _pay(self, key: str, number: str, payment: Payment) -> str:
        try:
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                query = """
                    INSERT INTO storm_calls VALUES (?, ?, 1) ON CONFLICT (key) DO UPDATE SET calls = calls + 1
                    RETURNING number
                """
                [made] = connection.execute(query, (key, number)).fetchone()
                if made == number:
                    connection.execute("INSERT INTO storm_payments VALUES (?, ?, ?, ?, ?)", (number, *payment))
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"the ledger did not answer within {BUSY:g} s: {error}") from error
        return str(made)

    def _find(self, key: str) -> str | None:
        with closing(self._connect()) as connection:
            found = connection.execute("SELECT number FROM storm_calls WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def _count(self) -> Calls:
        with closing(self._connect()) as connection:
            return Calls(*connection.execute("SELECT coalesce(sum(calls), 0), count(*) FROM storm_calls").fetchone())
