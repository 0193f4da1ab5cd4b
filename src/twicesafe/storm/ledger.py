"""The ledger: one row per payment made. Nothing in it is unique but a payment's own number: it shows what happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

TABLE: Final = """
CREATE TABLE IF NOT EXISTS storm_payments (
    number text NOT NULL PRIMARY KEY,
    run text NOT NULL,
    intent integer NOT NULL,
    account text NOT NULL,
    amount text NOT NULL
)
"""


class Payment(NamedTuple):
    """What is asked for. `run` keeps the rows of several storms on one database apart."""

    run: str
    intent: int
    account: str
    amount: str


class Ledger(Protocol):
    """The table `storm_payments` in one database. An async context manager, which opens and closes its connections.

    Each method raises StoreUnavailableError where the database is not there.
    """

    async def create(self) -> None:
        """Make the table where it is missing."""

    async def write(self, connection: Any, number: str, payment: Payment) -> None:
        """One row, in the transaction that `connection` is in."""

    def errors(self) -> AbstractContextManager[None]:
        """For what else is written in the transaction: errors of its database raise StoreUnavailableError."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction without twicesafe: a connection to `write` on, committed at the end of the block."""

    async def payments(self, run: str) -> Mapping[int, list[str]]:
        """Payment numbers by intent, of one run."""

    async def __aenter__(self) -> Ledger: ...

    async def __aexit__(self, *exc: object) -> None: ...


def by_intent(rows: Iterable[tuple[int, str]]) -> Mapping[int, list[str]]:
    """Payment numbers by intent."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for intent, number in rows:
        found[intent].append(number)
    return found
