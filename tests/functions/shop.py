"""An operation of several steps against a database and a payment provider, and everything that can go wrong with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from twicesafe.once import Answered, Done, NotDone, Once, current
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.testing import ManualClock

K = "order-77"
WINDOW = timedelta(hours=24)


class DeclinedError(Exception):
    """The provider says no."""


class UnreachableError(Exception):
    """Nothing was sent."""


@dataclass
class Provider:
    """Another system: charges once per key, and remembers keys."""

    charges: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None

    def charge(self, key: str, cents: int) -> str:
        self.before()
        self.asked.append(key)
        self.charges.setdefault(key, cents)
        self.after()
        return f"ch_{len(self.charges)}"

    def find(self, key: str, cents: int) -> Answered:
        return Done("found") if self.charges.get(key) == cents else NotDone()


class Shop:
    """Stock in a SQLite file, money at the provider."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.clock = ManualClock()
        self.provider = Provider()
        self.events: list[Any] = []
        self.store = SqliteStore(file, clock=self.clock)
        self.store.apply_schema()
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS steps (step TEXT)")
            connection.commit()
        self.runs = 0
        self.once = self.another()

    def another(self) -> Once:
        """A process of its own, as it were."""
        return Once(self.store, scope="shop", observer=self.events.append)

    def rows(self) -> list[str]:
        with closing(sqlite3.connect(self.file)) as connection:
            return [step for (step,) in connection.execute("SELECT step FROM steps ORDER BY rowid")]

    def operation(self, once: Once | None = None, **call: Any) -> Callable[[str, int], str]:
        """Four phases and two calls."""

        def reserve(connection: sqlite3.Connection, order: str) -> int:
            connection.execute("INSERT INTO steps VALUES ('reserve')")
            return len(order)

        def note(connection: sqlite3.Connection, what: str) -> None:
            connection.execute("INSERT INTO steps VALUES (?)", (what,))

        def buy(order: str, cents: int) -> str:
            self.runs += 1
            at = current()
            length = at.phase("reserve", reserve, order)
            charge = at.call("charge", self.provider.charge, cents, **call)
            at.phase("charged", note, f"charged {charge}")
            fee = at.call("fee", self.provider.charge, length, **call)
            at.phase("paid", note, f"paid {fee}")
            at.phase("end", note, "end")
            return f"{charge} {fee}"

        return (once or self.once).operation(key=lambda order, cents: order, effects="resumable", name="buy")(buy)
