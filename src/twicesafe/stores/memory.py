"""Records in this process's memory: for tests, development, and servers of one process that may forget on restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import ConfigurationError
from twicesafe.stores.contract import AsyncTransaction, AuditEntry, Outstanding, Swept
from twicesafe.stores.memory_blocking import LOOKED_AT_TOGETHER, NO_TRANSACTION, MemoryStore
from twicesafe.stores.memory_room import BYTES, RECORDS, wall_clock

__all__ = ["AsyncMemoryStore", "MemoryStore"]


class AsyncMemoryStore:
    """An AsyncStore over a MemoryStore, whose calls never wait. `store` shares the records of an existing one."""

    transactional = False

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        clock: Callable[[], Instant] = wall_clock,
        records_at_most: int = RECORDS,
        bytes_at_most: int = BYTES,
    ) -> None:
        if store is None:
            store = MemoryStore(clock=clock, records_at_most=records_at_most, bytes_at_most=bytes_at_most)
        self._store = store
        self._claim, self._complete = self._store.claim, self._store.complete

    def __len__(self) -> int:
        """How many records are kept, expired ones that are still to be dropped included."""
        return len(self._store)

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return self._claim(claim)

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        self._store.renew(own, lease_us)

    async def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        self._store.advance(own, seen, point, data)

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._store.start_answer(own, head)

    async def complete(
        self,
        own: Ownership,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        *,
        keep_effects: bool = True,  # noqa: ARG002
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here."""
        self._complete(own, response, key_us, body_us)

    async def release(self, own: Ownership) -> None:
        """See Session.release."""
        self._store.release(own)

    async def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        self._store.hold(own)

    def transaction(self) -> AsyncTransaction:
        """ConfigurationError: there is nothing here to share a transaction with."""
        raise ConfigurationError(NO_TRANSACTION)

    async def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return self._store.read(digest)

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return self._store.settle(own, response, key_us, body_us)

    async def now(self) -> Instant:
        """See Store.now."""
        return self._store.now()

    async def purge(self, limit: int = 1000) -> int:
        """See Store.purge. The event loop runs others in between."""
        touched, left = 0, self._store._expired_at_most()  # noqa: SLF001 - one store in two classes
        while left > 0 and touched < limit:
            touched += self._store._purge_some(min(left, LOOKED_AT_TOGETHER), limit - touched)  # noqa: SLF001
            left -= LOOKED_AT_TOGETHER
            await asyncio.sleep(0)
        return touched

    async def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale."""
        return self._store.settle_stale(look_at)

    async def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool:
        """See Resumes.reopen."""
        return self._store.reopen(own, seen, point, data)

    async def outstanding(self, after: object = None, look_at: int = 5_000) -> Outstanding:
        """See Resumes.outstanding."""
        return self._store.outstanding(after, look_at)

    async def audit(self, entry: AuditEntry) -> None:
        """See Audits.audit."""
        self._store.audit(entry)

    async def audited(self, entry: AuditEntry, outcome: str) -> None:
        """See Audits.audited."""
        self._store.audited(entry, outcome)

    async def audits(self, digest: bytes) -> list[AuditEntry]:
        """See Audits.audits."""
        return self._store.audits(digest)

    async def check_schema(self) -> None:
        """There is none."""

    async def apply_schema(self) -> None:
        """There is none."""

    async def aclose(self) -> None:
        """There is nothing to give back; the records go with the store."""
