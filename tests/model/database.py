"""A database whose state is a value: the real statements, run by a real SQLite, on rows that are handed to it.

What a statement makes of some rows at some instant is always the same, so it is run once and remembered.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple

from twicesafe.core.record import Instant
from twicesafe.stores.sql.rows import COLUMNS
from twicesafe.stores.sql.schema import apply_schema
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.steps import Statement, drive

RECORDS: Final = "twicesafe_records"
EFFECTS: Final = "effects"
OUTBOX: Final = "twicesafe_outbox"
SHARDS: Final = "twicesafe_relay_shards"
INBOX: Final = "twicesafe_inbox"
TABLES: Final = (RECORDS, EFFECTS, OUTBOX, SHARDS, INBOX)

Rows = tuple[tuple[Any, ...], ...]
Number = int
"""Of a state of the whole database. Equal states have the same."""


class Done(NamedTuple):
    """What a statement came to."""

    state: Number
    rows: Rows


class Database:
    """All states that were met so far."""

    def __init__(self, shards: int = 0) -> None:
        self.now: Instant = 0
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.create_function("twicesafe_now", 0, lambda: self.now)
        drive(apply_schema(Queries(Dialect.SQLITE, Placeholder.QUESTION_MARK)), self._plainly)
        self._connection.execute("CREATE TABLE effects (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        self._connection.execute(f"DELETE FROM {SHARDS} WHERE shard >= {shards}")
        self._columns = {
            table: [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")] for table in TABLES
        }
        self._columns[RECORDS] = [*COLUMNS, "purge_minute"]
        self._states: list[tuple[Rows, ...]] = []
        self._numbers: dict[tuple[Rows, ...], Number] = {}
        self._loaded = tuple(self._dumped(table) for table in TABLES)
        self._known: dict[tuple[Number, Instant, Statement], Done] = {}
        self.start: Final = self._number(self._loaded)

    def _plainly(self, step: Any) -> Any:
        rows: Any = ()
        for statement in getattr(step, "statements", (step,)):
            rows = self._connection.execute(statement.text, statement.parameters).fetchall()
        return rows

    def rows(self, state: Number, table: str) -> Rows:
        """All rows of a table, as they lie. Of a record, the columns of rows.py, and one more."""
        return self._states[state][TABLES.index(table)]

    def named(self, state: Number, table: str, key: str) -> dict[Any, dict[str, Any]]:
        """The rows of a table by one of their columns, with all of them by name."""
        columns = self._columns[table]
        rows = [dict(zip(columns, row, strict=True)) for row in self.rows(state, table)]
        return {row[key]: row for row in rows}

    def perform(self, state: Number, now: Instant, statement: Statement) -> Done:
        """What the statement makes of the state, at this instant, and its answer."""
        known = (state, now, statement)
        done = self._known.get(known)
        if done is None:
            done = self._known[known] = self._perform(state, now, statement)
        return done

    def _perform(self, state: Number, now: Instant, statement: Statement) -> Done:
        self._load(self._states[state])
        self.now = now
        before = self._connection.total_changes
        cursor = self._connection.execute(statement.text, statement.parameters)
        rows = ((),) * cursor.rowcount if statement.writes and not statement.returns else tuple(cursor.fetchall())
        if self._connection.total_changes == before:
            return Done(state, rows)
        self._loaded = tuple(
            self._dumped(table) if table in statement.text else self._loaded[place]
            for place, table in enumerate(TABLES)
        )
        return Done(self._number(self._loaded), rows)

    def _number(self, state: tuple[Rows, ...]) -> Number:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _load(self, state: tuple[Rows, ...]) -> None:
        for place, table in enumerate(TABLES):
            if state[place] == self._loaded[place]:
                continue
            columns = self._columns[table]
            self._connection.execute(f"DELETE FROM {table}")
            self._connection.executemany(
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", state[place]
            )
            if table == OUTBOX:
                # Numbers are drawn as they would have been.
                self._connection.execute(
                    "UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(seq), 0) FROM twicesafe_outbox)"
                )
        self._loaded = state

    def _dumped(self, table: str) -> Rows:
        return tuple(self._connection.execute(f"SELECT {', '.join(self._columns[table])} FROM {table} ORDER BY rowid"))
