"""The transactional way: claim, effect and answer are one transaction.

The claim reads and locks; the only row it ever writes is the completed record, as the last statement before COMMIT.
Nothing in progress is ever visible, and a crash leaves nothing. Locks answer rivals at once, but they are a courtesy:
the arbiter is the unique key, for the record goes in only where nothing is in the way but what was seen.
"""

from __future__ import annotations

from typing import Final

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.lifecycle import Verdict, decide
from twicesafe.core.record import Instant, Micros, Ownership, Record, RecordState, StoredResponse
from twicesafe.errors import ConfigurationError, LeaseLostError, StoreUnavailableError
from twicesafe.stores.sql.advisory import lock_keys
from twicesafe.stores.sql.leased import ROUNDS, SqlSteps, lease_lost
from twicesafe.stores.sql.rows import WIDTH, of_claim, of_response, of_seen, to_record
from twicesafe.stores.sql.statements import Dialect, Queries
from twicesafe.stores.steps import Batch, Steps

_NOT_MINE: Final = frozenset({Verdict.FREE, Verdict.OWN, Verdict.TAKE_OVER, Verdict.HOLD, Verdict.SETTLE})
"""Verdicts on which somebody would have to act, and the one who holds the key's lock is at it."""

MINE: Final = "mine"
_SUFFIX: Final = " frozen"
FROZEN: Final = MINE + _SUFFIX
_MINE: Final = frozenset({MINE, FROZEN})
"""Whose the lock of the key is, in the words of statements.sql."""

ENDED_EARLY: Final = (
    "the handler ended its transaction itself, by COMMIT or ROLLBACK, so its answer was not recorded; rows that it "
    "wrote may be committed, and another attempt with the same key would write them again. Leave the end of the "
    "transaction to twicesafe: to undo the work, raise, or answer with an error status"
)


class SqlTransactionSteps:
    """One transaction's dealings, from `begin` or `claim` to `complete`, `commit` or `roll_back`."""

    def __init__(self, sql: Queries, leased: SqlSteps | None = None) -> None:
        """`leased`, where given, is the store's: what that has seen to be settled is looked for first."""
        self._sql = sql
        self._leased = SqlSteps(sql) if leased is None else leased
        self._asks_whose = "still_mine" in sql.all()
        """Whether a record also goes in nowhere but where its claim was made."""
        self.open = False
        """Whether the transaction has begun and has not ended."""
        self._claim: Claim | None = None
        self._seen: Record | None = None
        self._own: Ownership | None = None
        self._claimed_at: Instant = 0

    def begin(self) -> Steps[None]:
        """See Transaction.begin. RuntimeError where it has begun already."""
        if self.open:
            raise RuntimeError("this transaction has begun already")
        yield self._sql("begin")
        self.open = True

    def commit(self) -> Steps[None]:
        """See Transaction.commit. RuntimeError where a claim was won: its answer belongs to the commit."""
        if self._claim is not None:
            raise RuntimeError("a transaction whose claim was won is committed by complete(), with its answer")
        self.open = False
        yield self._sql("commit")

    def claim(self, claim: Claim) -> Steps[Claimed | Existing]:
        """See Session.claim. A transaction that it began itself is left open if, and only if, the claim is won."""
        sql, joins = self._sql, self.open
        settled_here = self._leased.settled_here
        if not joins and (sql.dialect is Dialect.SQLITE or claim.digest in settled_here):
            decided = yield from self.look_first(claim)
            if decided is not None:
                return decided
        for _ in range(ROUNDS):
            row = (yield self._opening(claim, joins=joins))[0]
            record, now, lock = to_record(row), row[WIDTH], row[WIDTH + 1]
            if lock != MINE:
                lock = yield from self._locked(claim, record, lock)
            verdict = decide(record, claim.fingerprint, claim.owner, now)
            existing: Existing | Claimed | None
            if verdict not in _NOT_MINE:
                existing = Existing(verdict, record, now)
                if record is not None and record.state is RecordState.COMPLETED:
                    settled_here.add(claim.digest)
            elif lock not in _MINE:
                existing = yield from self._rival(claim, verdict, lock, now)
            elif verdict is Verdict.HOLD or verdict is Verdict.SETTLE:
                assert record is not None
                judge = self._leased.hold_stale if verdict is Verdict.HOLD else self._leased.settle_answered
                existing = yield from judge(claim, record)
                if not joins:
                    yield sql("commit")
                if existing is None:
                    continue
                return existing
            else:
                epoch = 1 if record is None else record.epoch + 1
                previous = record if verdict is Verdict.TAKE_OVER else None
                if record is None and lock == FROZEN:
                    record = yield from self._mark(claim)
                self.open = True
                self._claim, self._seen, self._claimed_at = claim, record, now
                self._own = own = Ownership(claim.digest, claim.owner, epoch)
                return Claimed(own, now, previous)
            if not joins:
                yield sql("rollback")
            return existing
        raise StoreUnavailableError(f"the record changed {ROUNDS} times while it was being claimed: ask again")

    def look_first(self, claim: Claim) -> Steps[Existing | None]:
        """What is decided already, by a look outside any transaction: who only reads need not wait for who writes."""
        rows = yield self._sql("find", digest=claim.digest)
        if rows:
            record, now = to_record(rows[0]), rows[0][WIDTH]
            verdict = decide(record, claim.fingerprint, claim.owner, now)
            if verdict not in _NOT_MINE:
                return Existing(verdict, record, now)
        return None

    def _opening(self, claim: Claim, *, joins: bool = False) -> Batch:
        """Begin, lock and look. Each sees what the one before it waited for."""
        sql = self._sql
        begin = () if joins else (sql("begin"),)
        look = sql("look", digest=claim.digest)
        if sql.dialect is Dialect.SQLITE:
            return Batch((*begin, look))
        return Batch((*begin, sql("lock", **lock_keys(claim.digest, claim.fingerprint.value)), look))

    def _locked(self, claim: Claim, record: Record | None, lock: str | None) -> Steps[str]:
        """What a look that said no plain "mine" says of the lock. A frozen snapshot is made sure to be current."""
        if not lock or lock.startswith(" "):
            raise ConfigurationError(
                "this connection commits each statement by itself, so there is no transaction that claim, effect and "
                "answer could share: do not set AUTOCOMMIT on what the store is given"
            )
        if lock.endswith(_SUFFIX):
            if record is not None:
                yield self._sql("unchanged", digest=claim.digest)
            return lock if lock == FROZEN else lock.removesuffix(_SUFFIX)
        return lock

    def _mark(self, claim: Claim) -> Steps[Record | None]:
        """Put a row where a frozen snapshot shows none. Where there is one it fails, and asks to be begun again."""
        yield self._sql("claim", **of_claim(claim), lease_us=claim.lease_us, key_us=claim.key_us, request=None)
        rows = yield self._sql("find", digest=claim.digest)
        return to_record(rows[0]) if rows else None

    def _rival(self, claim: Claim, verdict: Verdict, lock: str, now: Instant) -> Steps[Existing]:
        """Somebody holds the key's lock. In doubt it is "in progress": asking again costs nothing, a false 422 does."""
        if verdict is Verdict.FREE and lock == "other":
            keys = lock_keys(claim.digest, claim.fingerprint.value)
            if (yield self._sql("rival_of_another_request", **keys)):
                return Existing(Verdict.MISMATCH, None, now)
        return Existing(Verdict.IN_PROGRESS, None, now)

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool
    ) -> Steps[None]:
        """See Session.complete. Ends the transaction."""
        if not self.open:
            yield from self._leased.completed_before(own)
            return
        claim = self._claim
        if claim is None or own != self._own:
            yield from self.roll_back()
            raise lease_lost()
        self.open, self._claim = False, None
        record = self._sql(
            "record",
            **of_claim(claim),
            **of_response(response, key_us, body_us),
            **of_seen(self._seen),
            epoch=own.epoch,
            created_at=self._claimed_at,
        )
        if keep_effects:
            if not (yield record):
                mine = not self._asks_whose or (yield self._sql("still_mine"))
                yield self._sql("rollback")
                raise lease_lost() if mine else RuntimeError(ENDED_EARLY)
            yield self._sql("commit")
            self._leased.settled_here.add(own.digest)
            return
        yield self._sql("rollback")
        lock = (yield self._opening(claim))[0][WIDTH + 1]
        if lock not in _MINE or not (yield record):
            # Whoever claimed in between runs or has answered. There is one answer to a key, and it is theirs.
            yield self._sql("rollback")
            raise lease_lost()
        yield self._sql("commit")
        self._leased.settled_here.add(own.digest)

    def start_answer(self, own: Ownership, head: StoredResponse) -> Steps[None]:
        """See Session.start_answer."""
        key_us = 0 if self._claim is None else self._claim.key_us
        yield from self.complete(own, head._replace(body=None), key_us, key_us, keep_effects=True)

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> Steps[None]:
        """See Resumes.advance. The transaction goes on; where the point is elsewhere it is rolled back."""
        if not self.open:
            raise RuntimeError("a recovery point is moved inside a transaction that has begun")
        try:
            yield from self._leased.advance(own, seen, point, data)
        except LeaseLostError:
            yield from self.roll_back()
            raise

    def roll_back(self) -> Steps[None]:
        """Release, hold, or leaving it unfinished: nothing was done."""
        if self.open:
            self.open, self._claim = False, None
            yield self._sql("rollback")

    def left(self) -> None:
        """Its connection was taken away and rolled back."""
        self.open, self._claim = False, None
