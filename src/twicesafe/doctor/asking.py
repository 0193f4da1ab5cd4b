"""One way to ask a store, whether it blocks or is waited for. A blocking one is asked in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.record import Effects
from twicesafe.owners import new_owner
from twicesafe.stores.callers_asyncio import arun
from twicesafe.stores.callers_blocking import run
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Rows, Statement, Steps

R = TypeVar("R")


class Asked(NamedTuple):
    """A store to be asked."""

    store: Any

    @property
    def is_async(self) -> bool:
        """Whether it is waited for."""
        return hasattr(self.store, "aclose")

    async def call(self, method: str, *arguments: Any) -> Any:
        """What the method gives."""
        function = getattr(self.store, method)
        return await function(*arguments) if self.is_async else await asyncio.to_thread(function, *arguments)

    async def in_transaction(self, steps: Callable[[Queries], Steps[R]]) -> R:
        """What the steps come to in a transaction that is rolled back."""
        if self.is_async:
            async with self.store.transaction() as transaction:
                await transaction.begin()
                return await arun(transaction.connection, steps)

        def blocking() -> R:
            with self.store.transaction() as transaction:
                transaction.begin()
                return run(transaction.connection, steps)

        return await asyncio.to_thread(blocking)

    async def claims_in_a_transaction(self) -> bool:
        """Whether a claim can be made in one; it is rolled back. ConfigurationError where there is no transaction."""
        claim = Claim(
            new_owner() + new_owner(), "doctor", "doctor", "…", GivenFingerprint(b"\x01" + bytes(32)),
            Effects.TRANSACTIONAL, new_owner(), 30_000_000, 60_000_000,
        )  # fmt: skip
        if self.is_async:
            async with self.store.transaction() as transaction:
                return type(await transaction.claim(claim)) is Claimed

        def blocking() -> bool:
            with self.store.transaction() as transaction:
                return type(transaction.claim(claim)) is Claimed

        return await asyncio.to_thread(blocking)

    async def close(self) -> None:
        """Give back what it has opened."""
        if self.is_async:
            await self.store.aclose()
        else:
            await asyncio.to_thread(self.store.close)


def asking(text: str) -> Callable[[Queries], Steps[Rows]]:
    """The rows of one question. It has no parameters."""

    def steps(_: Queries) -> Steps[Rows]:
        rows = yield Statement("doctor", text, (), writes=False, returns=True)
        return rows

    return steps
