"""A blocking store seen as an AsyncStore: every call in a thread, so that one set of checks proves both kinds.

Rivals are then threads, as they are in the servers that use blocking stores. A transaction stays on one thread of its
own, because drivers may want that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar, cast

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.stores.contract import Outstanding, Resumes, Session, SettlesStale, Store, Swept, Transaction

T = TypeVar("T")

THREADS: Final = 32
"""More than any check has rivals."""


class _InThreads:
    """A Session whose calls run in `pool`."""

    def __init__(self, session: Session, pool: ThreadPoolExecutor) -> None:
        self._session = session
        self._pool = pool

    async def run(self, call: Callable[..., T], *args: Any, **named: Any) -> T:
        """Call this in the session's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *args, **named))

    async def claim(self, claim: Claim) -> Claimed | Existing:
        return await self.run(self._session.claim, claim)

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        await self.run(self._session.renew, own, lease_us)

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        await self.run(self._session.start_answer, own, head)

    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        await self.run(self._session.complete, own, response, key_us, body_us, keep_effects=keep_effects)

    async def release(self, own: Ownership) -> None:
        await self.run(self._session.release, own)

    async def hold(self, own: Ownership) -> None:
        await self.run(self._session.hold, own)

    async def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        await self.run(cast("Resumes", self._session).advance, own, seen, point, data)


class TransactionInThread(_InThreads):
    """A Transaction, on one thread from its beginning to its end."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction, ThreadPoolExecutor(1, "transaction"))
        self._transaction = transaction

    @property
    def connection(self) -> Any:
        return self._transaction.connection

    async def begin(self) -> None:
        await self.run(self._transaction.begin)

    async def commit(self) -> None:
        await self.run(self._transaction.commit)

    async def __aenter__(self) -> TransactionInThread:
        try:
            await self.run(self._transaction.__enter__)
        except BaseException:
            self._pool.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self.run(self._transaction.__exit__, *exc)
        finally:
            self._pool.shutdown(wait=False)


class StoreInThreads(_InThreads):
    """A Store as an AsyncStore."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, ThreadPoolExecutor(THREADS, "store"))
        self._store = store
        self.transactional = store.transactional

    def transaction(self) -> TransactionInThread:
        return TransactionInThread(self._store.transaction())

    async def read(self, digest: bytes) -> Found:
        return await self.run(self._store.read, digest)

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        return await self.run(self._store.settle, own, response, key_us, body_us)

    async def now(self) -> Instant:
        return await self.run(self._store.now)

    async def purge(self, limit: int = 1000) -> int:
        return await self.run(self._store.purge, limit)

    async def settle_stale(self, look_at: int = 20_000) -> Swept:
        return await self.run(cast("SettlesStale", self._store).settle_stale, look_at)

    async def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool:
        return await self.run(cast("Resumes", self._store).reopen, own, seen, point, data)

    async def outstanding(self, after: object = None, look_at: int = 5_000) -> Outstanding:
        return await self.run(cast("Resumes", self._store).outstanding, after, look_at)

    async def check_schema(self) -> None:
        await self.run(self._store.check_schema)

    async def apply_schema(self) -> None:
        await self.run(self._store.apply_schema)

    async def aclose(self) -> None:
        try:
            await self.run(self._store.close)
        finally:
            self._pool.shutdown(wait=False)
