"""The writers: transactions of 0 to 20 ms that commit a message each, and some that add one and roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import AsyncStore
from twicesafe.storm.messages.books import SenderBooks, named

LONGEST: Final = 0.020
"""Seconds from BEGIN to COMMIT, beside what the statements take."""
_IN_VAIN: Final = 0.03
"""The share of messages that are first written in a transaction that rolls back."""
_MESSAGES_PER_AGGREGATE: Final = 100


class Work(NamedTuple):
    """A message to write."""

    number: int
    aggregate: str
    before: float
    """Seconds from BEGIN to adding it, and `after` from there to what makes its place known, and COMMIT."""
    after: float
    in_vain: bool
    """Whether it is written and rolled back first, under another id."""


def aggregates(messages: int) -> int:
    """How many aggregates so many messages are about."""
    return max(8, messages // _MESSAGES_PER_AGGREGATE)


def draw(seed: int, messages: int) -> Iterator[Work]:
    """The same for the same seed and number. Some aggregates have many more messages than others, and contention."""
    random = Random(seed)  # noqa: S311 - a plan is to be repeated, not kept secret
    for number in range(messages):
        aggregate = named(int(random.random() ** 2 * aggregates(messages)))
        whole = random.uniform(0.0, LONGEST)
        before = whole * random.random()
        yield Work(number, aggregate, before, whole - before, random.random() < _IN_VAIN)


class Writer:
    """Writes what it takes from the others' common `work`, on a connection of its own."""

    def __init__(self, store: AsyncStore, done: Callable[[], None]) -> None:
        self.rolled_back = 0
        self._store = store
        self._books = SenderBooks(store)
        self._done = done

    async def write(self, work: Iterator[Work]) -> None:
        """Until there is no more."""
        for one in work:
            if one.in_vain:
                while not await self._tried(one, commits=False):
                    pass
                self.rolled_back += 1
            while not await self._tried(one, commits=True):
                pass
            self._done()

    async def _tried(self, one: Work, *, commits: bool) -> bool:
        """Whether it is done. A commit without an answer is looked up."""
        try:
            async with self._store.transaction() as transaction:
                await transaction.begin()
                await asyncio.sleep(one.before)
                message = await self._books.add(transaction.connection, one.number, one.aggregate)
                await asyncio.sleep(one.after)
                if commits:
                    await self._books.note(transaction.connection, one.number, message)
                    await transaction.commit()
        except StoreUnavailableError:
            with suppress(StoreUnavailableError):
                return commits and await self._books.is_sent(one.number)
            await asyncio.sleep(LONGEST)
            return False
        return True
