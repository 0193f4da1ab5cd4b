"""Records in this process's memory: for tests, development, and servers of one process that may forget on restart.

Theory of operation. Claims, and outcomes that are unknown, are few and short-lived: one dict leads from a digest to its
record. A completed record goes to another dict as ONE bytes object, packed, its answer's body beside it: a few hundred
thousand records cost the garbage collector nothing, where as many tuples stop the process for a quarter of a second at
a time. A claim stands before what is completed under its digest, which can only be over by then.

The space is bounded. A store that is full takes no new key, and says so as one that is out of reach: nothing runs that
could not be remembered, and nothing that is remembered is given up for it.

Nothing is ever searched. A queue holds every completed digest exactly once; while something may have expired, each
claim looks at the few digests at its head, drops what is over and puts the rest back at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.lifecycle import Standing, Verdict, abandoned, decide, outstanding, standing
from twicesafe.core.record import Effects, Instant, Micros, Ownership, Record, RecordState, StoredResponse
from twicesafe.core.turns import goes_on_at_once
from twicesafe.errors import ConfigurationError, LeaseLostError, StoreUnavailableError
from twicesafe.stores.contract import AuditEntry, Outstanding, Swept, Transaction
from twicesafe.stores.memory_room import BYTES, FULL, RECORDS, check_room, wall_clock
from twicesafe.stores.memory_rows import Begun, begun, ends_of, pack, unpack

NO_TRANSACTION: Final = (
    "a memory store has no transactions to share with your effects: declare the operation keyed, resumable or opaque, "
    "or keep its records beside its data with twicesafe.stores.sqlite, twicesafe.stores.asyncpg or "
    "twicesafe.stores.psycopg"
)
LASTING: Final = "a claim's lease and retention last a microsecond at least"
LOOKED_AT_PER_CLAIM: Final = 4
"""More than one, or the queue would never come round while records are made; few, because a claim pays for it."""
LOOKED_AT_TOGETHER: Final = 500
"""A purge lets claims through after this many rows, some 0.3 ms."""

_FAR: Final[Instant] = 1 << 62
_new: Final = tuple.__new__
"""Makes a named tuple by one call instead of two."""


class MemoryStore:
    """A Store of the leased way, safe to share between threads. `clock` gives microseconds since the epoch.

    It keeps at most `records_at_most` records, and takes no further key once completed ones fill `bytes_at_most`.
    """

    transactional = False

    def __init__(
        self, *, clock: Callable[[], Instant] = wall_clock, records_at_most: int = RECORDS, bytes_at_most: int = BYTES
    ) -> None:
        check_room(records_at_most, bytes_at_most)
        self._clock = clock
        self._records_at_most, self._bytes_at_most = records_at_most, bytes_at_most
        self._bytes = 0
        """Of completed records, their answers included."""
        self._lock = Lock()
        self._live: dict[bytes, Record | Begun] = {}
        """Claimed and unknown."""
        self._rows: dict[bytes, bytes] = {}
        """Completed."""
        self._bodies: dict[bytes, bytes] = {}
        """Of completed answers, as long as they are kept."""
        self._queue: deque[bytes] = deque()
        self._due = _FAR
        """Before this instant nothing can have expired."""
        self._due_later = _FAR
        """The same for what this round of the queue leaves behind."""
        self._unseen = 0
        """How many digests this round has still to look at."""
        self._swept = 0
        """How many claims the sweep for stale ones has come past."""
        self._audits: list[AuditEntry] = []

    def __len__(self) -> int:
        """How many records are kept, expired ones that are still to be dropped included."""
        with self._lock:
            return len(self._rows) + sum(1 for digest in self._live if digest not in self._rows)

    # --- the exchange -------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        digest = claim[0]
        with self._lock:
            now = self._clock()
            if now >= self._due:
                self._look_at(LOOKED_AT_PER_CLAIM, now)
            if digest in self._live or digest in self._rows:
                return self._claim_again(claim, now)
            if self._bytes >= self._bytes_at_most or len(self._live) + len(self._rows) >= self._records_at_most:
                raise StoreUnavailableError(FULL)
            if claim[7] < 1 or claim[8] < 1:
                raise ValueError(LASTING)
            self._live[digest] = (claim, now)
            return _new(Claimed, (_new(Ownership, (digest, claim[6], 1)), now, None))

    def _begin_again(self, claim: Claim, now: Instant, epoch: int, previous: Record | None) -> Claimed:
        record = begun((claim, now))._replace(epoch=epoch)
        if previous is not None:
            record = record._replace(
                created_at=previous.created_at,
                key_until=previous.key_until,
                body_until=previous.key_until,
                recovery_point=previous.recovery_point,
                recovery_data=previous.recovery_data,
                request=previous.request or claim.request,
            )
        self._live[claim.digest] = record
        return Claimed(record.ownership, now, previous)

    def _claim_again(self, claim: Claim, now: Instant) -> Claimed | Existing:
        digest = claim.digest
        record = self._find(digest)
        assert record is not None
        verdict = decide(record, claim.fingerprint, claim.owner, now)
        if verdict is Verdict.FREE or verdict is Verdict.TAKE_OVER:
            return self._begin_again(claim, now, record.epoch + 1, None if verdict is Verdict.FREE else record)
        if verdict is Verdict.OWN:
            # The reply was lost on the way; by now the lease may be over, so it begins again.
            self._live[digest] = record._replace(lease_until=now + claim.lease_us)
            # Under a later epoch it may have been a take-over, and whoever ran before may have done something.
            return Claimed(record.ownership, now, record if record.epoch > 1 else None)
        if verdict is Verdict.HOLD or verdict is Verdict.SETTLE:
            self._end(record, verdict, now, claim.key_us)
            verdict = Verdict.UNKNOWN if verdict is Verdict.HOLD else Verdict.GONE
            return Existing(verdict, self._find(digest), now)
        return Existing(verdict, record, now)

    def _end(self, record: Record, verdict: Verdict, now: Instant, key_us: Micros) -> None:
        """Its owner is gone: do what is to be done about it."""
        if verdict is Verdict.HOLD:
            self._live[record.digest] = record._replace(state=RecordState.UNKNOWN)
        elif verdict is Verdict.SETTLE:
            assert record.response is not None
            self._complete(record.digest, record, record.response, now, key_us, 0)
        else:
            del self._live[record.digest]

    def _find(self, digest: bytes) -> Record | None:
        live = self._live.get(digest)
        if live is not None:
            return live if isinstance(live, Record) else begun(live)
        row = self._rows.get(digest)
        return None if row is None else unpack(digest, row, self._bodies.get(digest))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        with self._lock:
            record = self._claimed(own)
            if lease_us < 1:
                raise ValueError(LASTING)
            self._live[own.digest] = record._replace(lease_until=self._clock() + lease_us)

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """See Resumes.advance."""
        with self._lock:
            record = self._claimed(own)
            if record.recovery_point != seen:
                raise _lost()
            before = b"" if seen is None else record.recovery_data or b""
            self._live[own.digest] = record._replace(recovery_point=point, recovery_data=before + data)

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        with self._lock:
            self._live[own.digest] = self._claimed(own)._replace(response=head._replace(body=None))

    def _claimed(self, own: Ownership) -> Record:
        record = self._owned(own)
        if record.state is not RecordState.CLAIMED:
            raise _lost()
        return record

    def _owned(self, own: Ownership) -> Record:
        record = self._find(own.digest) if own.digest in self._live else None
        if record is None or record.owner != own.owner or record.epoch != own.epoch:
            raise _lost()
        return record

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
        digest, owner, epoch = own
        with self._lock:
            live = self._live.get(digest)
            if type(live) is not tuple or live[0][6] != owner or epoch != 1:
                record = self._find(digest)
                if record is None or record.owner != owner or record.epoch != epoch:
                    raise _lost()
                if live is None:
                    return
            self._complete(digest, live, response, self._clock(), key_us, body_us)

    def _complete(
        self,
        digest: bytes,
        live: Record | Begun,
        response: StoredResponse,
        now: Instant,
        key_us: Micros,
        body_us: Micros,
    ) -> None:
        body, rows = response[2], self._rows
        until = now + key_us
        body_until = now + body_us
        if digest in rows:
            self._bytes -= len(rows[digest]) + len(self._bodies.get(digest, b""))
        else:
            self._queue.append(digest)
        row = rows[digest] = pack(live, response, now, until, body_until)
        self._bytes += len(row)
        if body is not None:
            self._bodies[digest] = body
            self._bytes += len(body)
            if body_until < until:
                until = body_until
        elif digest in self._bodies:
            del self._bodies[digest]
        if until < self._due:
            self._due = until
        if until < self._due_later:
            self._due_later = until
        del self._live[digest]

    def release(self, own: Ownership) -> None:
        """See Session.release."""
        with self._lock:
            record = self._owned(own)
            if standing(record, self._clock()) is Standing.ANSWERED:
                # Its owner seemed gone and its answer had begun to leave: that was done.
                raise _lost()
            del self._live[own.digest]

    def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        with self._lock:
            self._live[own.digest] = self._owned(own)._replace(state=RecordState.UNKNOWN)

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """ConfigurationError: there is nothing here to share a transaction with."""
        raise ConfigurationError(NO_TRANSACTION)

    def read(self, digest: bytes) -> Found:
        """See Store.read."""
        with self._lock:
            return Found(self._find(digest), self._clock())

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        with self._lock:
            record = self._unknown(own)
            if record is None:
                return False
            if response is None:
                del self._live[own.digest]
            else:
                self._complete(own.digest, record, response, self._clock(), key_us, body_us)
            return True

    def _unknown(self, own: Ownership) -> Record | None:
        record = self._live.get(own.digest)
        if type(record) is not Record or record.state is not RecordState.UNKNOWN or record.ownership != own:
            return None
        return record

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

    def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale. It looks at claims and unknown outcomes only."""
        settled = 0
        with self._lock:
            now, live = self._clock(), list(self._live)
            if self._swept >= len(live):
                self._swept = 0
            looked_at = live[self._swept : self._swept + look_at]
            self._swept += look_at
            for digest in looked_at:
                record = self._find(digest)
                verdict = None if record is None else abandoned(record, now)
                if record is not None and verdict is not None:
                    self._end(record, verdict, now, record.key_until - record.created_at)
                    settled += 1
                    self._swept -= digest not in self._live
            return Swept(settled, self._swept < len(self._live))

    def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool:
        """See Resumes.reopen."""
        with self._lock:
            record = self._unknown(own)
            if record is None:
                return False
            if record.effects is not Effects.RESUMABLE or record.recovery_point != seen:
                return False
            until = record.created_at if goes_on_at_once(point) else self._clock()
            self._live[own.digest] = record._replace(
                state=RecordState.CLAIMED, lease_until=until, recovery_point=point, recovery_data=data
            )
            return True

    def outstanding(self, after: object = None, look_at: int = 5_000) -> Outstanding:
        """See Resumes.outstanding."""
        with self._lock:
            now, live = self._clock(), list(self._live)
            start = after if isinstance(after, int) else 0
            records = [record for record in map(self._find, live[start : start + look_at]) if outstanding(record, now)]
            end = start + look_at
            return Outstanding(tuple(records), now, end if end < len(live) else None)

    def audit(self, entry: AuditEntry) -> None:
        """See Audits.audit."""
        with self._lock:
            self._audits.append(entry._replace(at=self._clock(), outcome="asked"))

    def audited(self, entry: AuditEntry, outcome: str) -> None:
        """See Audits.audited."""
        with self._lock:
            self._audits = [one._replace(outcome=outcome) if one.id == entry.id else one for one in self._audits]

    def audits(self, digest: bytes) -> list[AuditEntry]:
        """See Audits.audits."""
        return [one for one in self._audits if one.digest == digest]

    def check_schema(self) -> None:
        """There is none."""

    def apply_schema(self) -> None:
        """There is none."""

    def close(self) -> None:
        """There is nothing to give back; the records go with the store."""

    # --- expiry -------------------------------------------------------------------------------------------------------

    def _look_at(self, count: int, now: Instant, limit: int = LOOKED_AT_PER_CLAIM) -> int:
        """Give the next `count` digests their turn, until `limit` of them had something to drop; how many had."""
        queue, rows, bodies = self._queue, self._rows, self._bodies
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
            until, body_until = ends_of(row)
            if now >= until:
                del rows[digest]
                self._bytes -= len(row) + len(bodies.pop(digest, b""))
                touched += 1
            else:
                if digest in bodies:
                    if now >= body_until:
                        self._bytes -= len(bodies.pop(digest))
                        touched += 1
                    else:
                        until = min(until, body_until)
                self._due_later = min(self._due_later, until)
                queue.append(digest)
            if not self._unseen:
                self._due = self._due_later
        return touched


def _lost() -> LeaseLostError:
    return LeaseLostError("the claim is no longer this owner's, or its record has moved on: nothing was changed")
