"""Records in this process's memory: for tests, development, and servers of one process that may forget on restart.

Theory of operation. One dict leads from a digest to ONE bytes object per record, packed: a few hundred thousand
records cost the garbage collector nothing, where as many tuples stop the process for a quarter of a second at a time.
Nothing is ever searched. A queue holds every digest of the dict exactly once; while something may have expired, each
claim looks at the few digests at its head, drops what is over and puts the rest back at the end. A released record
leaves an empty mark behind, so that its digest is not queued twice; its turn in the queue removes the mark.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock
from time import time_ns
from typing import Final

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.lifecycle import Verdict, decide
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import ConfigurationError, LeaseLostError
from twicesafe.stores.contract import AsyncTransaction, Transaction
from twicesafe.stores.memory_rows import (
    BODY,
    BODY_UNTIL,
    CLAIMED,
    COMPLETED,
    EPOCH,
    KEY_UNTIL,
    LASTING,
    LEASE_UNTIL,
    NO_BODY,
    OWNER,
    STATE,
    STATUS,
    UNKNOWN,
    Head,
    answered,
    head_of,
    moved,
    pack,
    to_record,
    without_body,
)

__all__ = ["AsyncMemoryStore", "MemoryStore"]

NO_TRANSACTION: Final = (
    "a memory store has no transactions to share with your effects: declare the operation keyed, resumable or opaque, "
    "or keep its records beside its data with twicesafe.stores.sqlite, twicesafe.stores.asyncpg or "
    "twicesafe.stores.psycopg"
)
LOOKED_AT_PER_CLAIM: Final = 4
"""More than one, or the queue would never come round while records are made; few, because a claim pays for it."""
LOOKED_AT_TOGETHER: Final = 500
"""A purge lets claims through after this many rows, some 0.3 ms."""

_FAR: Final[Instant] = 1 << 62
_RELEASED: Final = b""


def wall_clock() -> Instant:
    """The system's clock. It is this store's own: nobody else judges these records (I12)."""
    return time_ns() // 1000


class MemoryStore:
    """A Store of the leased way, safe to share between threads. `clock` gives microseconds since the epoch."""

    transactional = False

    def __init__(self, *, clock: Callable[[], Instant] = wall_clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._rows: dict[bytes, bytes] = {}
        self._queue: deque[bytes] = deque()
        self._due = _FAR
        """Before this instant nothing can have expired."""
        self._due_later = _FAR
        """The same for what this round of the queue leaves behind."""
        self._unseen = 0
        """How many digests this round has still to look at."""

    def __len__(self) -> int:
        """How many records are kept, expired ones that are still to be dropped included."""
        with self._lock:
            return len(self._rows) - sum(1 for row in self._rows.values() if not row)

    # --- the exchange -------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        digest = claim.digest
        with self._lock:
            now = self._clock()
            if now >= self._due:
                self._look_at(LOOKED_AT_PER_CLAIM, now)
            row = self._rows.get(digest)
            if row:
                return self._claim_again(claim, row, now)
            self._rows[digest] = pack(claim, 1, now)
            if row is None:
                self._queue.append(digest)
            return Claimed(Ownership(digest, claim.owner, 1), now)

    def _claim_again(self, claim: Claim, row: bytes, now: Instant) -> Claimed | Existing:
        record = to_record(claim.digest, row)
        verdict = decide(record, claim.fingerprint, claim.owner, now)
        if verdict is Verdict.REPLAY:
            return Existing(verdict, record, now)
        if verdict is Verdict.FREE or verdict is Verdict.TAKE_OVER:
            epoch = record.epoch + 1
            previous = None if verdict is Verdict.FREE else record
            self._rows[claim.digest] = pack(claim, epoch, now, previous)
            return Claimed(Ownership(claim.digest, claim.owner, epoch), now, previous)
        if verdict is Verdict.OWN:
            # The reply was lost on the way; by now the lease may be over, so it begins again.
            self._rows[claim.digest] = moved(row, head_of(row), state=CLAIMED, lease_until=now + claim.lease_us)
            return Claimed(record.ownership, now)
        if verdict is Verdict.HOLD or verdict is Verdict.SETTLE:
            if verdict is Verdict.HOLD:
                after = moved(row, head_of(row), state=UNKNOWN)
                verdict = Verdict.UNKNOWN
            else:
                until = now + claim.key_us
                after = moved(row, head_of(row), state=COMPLETED, lease_until=now, key_until=until)
                self._expect(until)
                verdict = Verdict.GONE
            self._rows[claim.digest] = after
            return Existing(verdict, to_record(claim.digest, after), now)
        return Existing(verdict, record, now)

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        with self._lock:
            row, head = self._owned(own)
            if head[STATE] != CLAIMED:
                raise _lost()
            if lease_us < 1:
                raise ValueError(LASTING)
            self._rows[own.digest] = moved(row, head, state=CLAIMED, lease_until=self._clock() + lease_us)

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        with self._lock:
            row, before = self._owned(own)
            if before[STATE] != CLAIMED:
                raise _lost()
            until = before[LEASE_UNTIL], before[KEY_UNTIL], before[BODY_UNTIL]
            self._rows[own.digest] = answered(row, before, CLAIMED, until, head._replace(body=None))

    def complete(
        self,
        own: Ownership,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        *,
        keep_effects: bool = True,  # noqa: ARG002
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here."""
        with self._lock:
            row, head = self._owned(own)
            if head[STATE] != COMPLETED:
                self._complete(own.digest, row, head, response, key_us, body_us)

    def _complete(
        self, digest: bytes, row: bytes, head: Head, response: StoredResponse, key_us: Micros, body_us: Micros
    ) -> None:
        now = self._clock()
        self._rows[digest] = answered(row, head, COMPLETED, (now, now + key_us, now + body_us), response)
        self._expect(now + min(body_us, key_us))

    def release(self, own: Ownership) -> None:
        """See Session.release."""
        with self._lock:
            _, head = self._owned(own)
            if head[STATE] == COMPLETED or (head[STATUS] and self._clock() >= head[LEASE_UNTIL]):
                # Nor once its owner seemed gone and its answer had begun to leave: that was done.
                raise _lost()
            self._forget(own.digest)

    def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        with self._lock:
            row, head = self._owned(own)
            if head[STATE] == COMPLETED:
                raise _lost()
            self._rows[own.digest] = moved(row, head, state=UNKNOWN)

    def _owned(self, own: Ownership) -> tuple[bytes, Head]:
        digest, owner, epoch = own
        row = self._rows.get(digest)
        if not row:
            raise _lost()
        head = head_of(row)
        if head[OWNER] != owner or head[EPOCH] != epoch:
            raise _lost()
        return row, head

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """ConfigurationError: there is nothing here to share a transaction with."""
        raise ConfigurationError(NO_TRANSACTION)

    def read(self, digest: bytes) -> Found:
        """See Store.read."""
        with self._lock:
            row = self._rows.get(digest)
            return Found(to_record(digest, row) if row else None, self._clock())

    def settle(
        self, digest: bytes, epoch: int, response: StoredResponse | None, key_us: Micros, body_us: Micros
    ) -> bool:
        """See Store.settle."""
        with self._lock:
            row = self._rows.get(digest)
            if not row:
                return False
            head = head_of(row)
            if head[STATE] != UNKNOWN or head[EPOCH] != epoch:
                return False
            if response is None:
                self._forget(digest)
            else:
                self._complete(digest, row, head, response, key_us, body_us)
            return True

    def now(self) -> Instant:
        """See Store.now."""
        return self._clock()

    def purge(self, limit: int = 1000) -> int:
        """See Store.purge. Claims drop what has expired too; this makes it sooner."""
        touched, left = 0, self._expired_at_most()
        while left > 0 and touched < limit:
            touched += self._purge_some(min(left, LOOKED_AT_TOGETHER), limit - touched)
            left -= LOOKED_AT_TOGETHER
        return touched

    def _expired_at_most(self) -> int:
        return len(self._queue) if self._clock() >= self._due else 0

    def _purge_some(self, count: int, limit: int) -> int:
        with self._lock:
            return self._look_at(count, self._clock(), limit)

    def check_schema(self) -> None:
        """There is none."""

    def apply_schema(self) -> None:
        """There is none."""

    def close(self) -> None:
        """There is nothing to give back; the records go with the store."""

    # --- expiry -------------------------------------------------------------------------------------------------------

    def _forget(self, digest: bytes) -> None:
        self._rows[digest] = _RELEASED
        self._expect(self._clock())

    def _expect(self, until: Instant) -> None:
        """Something ends at `until`."""
        if until < self._due:
            self._due = until
        if until < self._due_later:
            self._due_later = until

    def _look_at(self, count: int, now: Instant, limit: int = LOOKED_AT_PER_CLAIM) -> int:
        """Give the next `count` digests their turn, until `limit` of them had something to drop; how many had."""
        queue, rows = self._queue, self._rows
        touched = 0
        for _ in range(min(count, len(queue))):
            if touched >= limit:
                break
            if not self._unseen:
                self._unseen = len(queue)
                self._due_later = _FAR
            self._unseen -= 1
            digest = queue.popleft()
            row = rows[digest]
            if not row:
                del rows[digest]
            else:
                head = head_of(row)
                if head[STATE] == COMPLETED and now >= head[KEY_UNTIL]:
                    del rows[digest]
                    touched += 1
                else:
                    if head[STATE] == COMPLETED:
                        touched += self._drop_body(digest, row, head, now)
                    queue.append(digest)
            if not self._unseen:
                self._due = self._due_later
        return touched

    def _drop_body(self, digest: bytes, row: bytes, head: Head, now: Instant) -> int:
        """1 if the body's retention has ended. Notes when the row is to be looked at again."""
        until: Instant = head[KEY_UNTIL]
        ended = 0
        if head[BODY] != NO_BODY:
            if now >= head[BODY_UNTIL]:
                self._rows[digest] = without_body(row, head)
                ended = 1
            else:
                until = min(until, head[BODY_UNTIL])
        self._due_later = min(self._due_later, until)
        return ended


class AsyncMemoryStore:
    """An AsyncStore over a MemoryStore, whose calls never wait. `store` shares the records of an existing one."""

    transactional = False

    def __init__(self, store: MemoryStore | None = None, *, clock: Callable[[], Instant] = wall_clock) -> None:
        self._store = MemoryStore(clock=clock) if store is None else store

    def __len__(self) -> int:
        """How many records are kept, expired ones that are still to be dropped included."""
        return len(self._store)

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return self._store.claim(claim)

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        self._store.renew(own, lease_us)

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
        self._store.complete(own, response, key_us, body_us)

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

    async def settle(
        self, digest: bytes, epoch: int, response: StoredResponse | None, key_us: Micros, body_us: Micros
    ) -> bool:
        """See Store.settle."""
        return self._store.settle(digest, epoch, response, key_us, body_us)

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

    async def check_schema(self) -> None:
        """There is none."""

    async def apply_schema(self) -> None:
        """There is none."""

    async def aclose(self) -> None:
        """There is nothing to give back; the records go with the store."""


def _lost() -> LeaseLostError:
    return LeaseLostError("the claim is no longer this owner's, or its record has moved on: nothing was changed")
