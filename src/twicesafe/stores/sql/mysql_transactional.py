"""The transactional way on MySQL: claim, effect and answer are one transaction.

Theory of operation. A key has a named lock, which the session holds from the claim to behind the commit, so that rivals
are answered at once. A row lock would not do: InnoDB makes a rival's INSERT wait for as long as the handler runs, and
cannot be asked not to. With the lock in hand the table is looked at before the transaction begins, which shows what is
committed now at every isolation level and locks nothing. The only row written is the completed record, and it travels
with COMMIT; the unique key is the arbiter.

A savepoint marks the transaction as the one that was begun here. Nothing is recorded where it is gone.
"""

from __future__ import annotations

from typing import Any, Final

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.lifecycle import Verdict, decide
from twicesafe.core.record import Instant, Micros, Ownership, Record, StoredResponse
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.sql.leased import ROUNDS, lease_lost
from twicesafe.stores.sql.mysql_leased import MINE, MysqlSteps, lock
from twicesafe.stores.sql.rows import WIDTH, of_claim, of_response, of_seen, to_record
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Batch, Rows, Steps

_TO_ACT_ON: Final = frozenset({Verdict.FREE, Verdict.OWN, Verdict.TAKE_OVER, Verdict.HOLD, Verdict.SETTLE})
"""Verdicts on which somebody would have to act, and the one who holds the key's lock is at it."""

ENDED_EARLY: Final = (
    "the transaction was over before its answer could be recorded: the handler ended it by COMMIT, by ROLLBACK or by a "
    "statement that commits by itself, as CREATE TABLE does, or the server rolled it back for a deadlock that the "
    "handler did not report. Nothing was recorded; rows that the handler wrote may be committed, and another attempt "
    "with the same key would write them again. Leave the end of the transaction to twicesafe: to undo the work, raise, "
    "or answer with an error status"
)


class MysqlTransactionSteps:
    """One transaction's dealings, from `begin` or `claim` to `complete`, `commit` or `roll_back`."""

    def __init__(self, sql: Queries) -> None:
        self._sql = sql
        self.open = False
        """Whether the transaction has begun and has not ended."""
        self._claim: Claim | None = None
        self._described: dict[str, Any] = {}
        """The parameters that describe the claim."""
        self._own: Ownership | None = None
        self._claimed_at: Instant = 0
        self._seen: dict[str, Any] | None = None
        """Which row is in the way of the record. None: none is."""
        self._inserted = False
        """Whether that row is this transaction's own, and goes with it."""

    def begin(self) -> Steps[None]:
        """See Transaction.begin. RuntimeError where it has begun already."""
        if self.open:
            raise RuntimeError("this transaction has begun already")
        yield Batch((self._sql("begin"), self._sql("mark")))
        self.open = True

    def commit(self) -> Steps[None]:
        """See Transaction.commit. RuntimeError where a claim was won: its answer belongs to the commit."""
        if self._claim is not None:
            raise RuntimeError("a transaction whose claim was won is committed by complete(), with its answer")
        self.open = False
        yield Batch((self._sql("still_open"), self._sql("commit"), self._sql("unlock")))

    # --- claiming -----------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Steps[Claimed | Existing]:
        """See Session.claim. A transaction that it began itself is left open if, and only if, the claim is won."""
        if self.open:
            return (yield from self._join(claim))
        sql = self._sql
        self._described = of_claim(claim)
        opening = Batch((lock(sql, claim.digest, 0), sql("look", digest=claim.digest), sql("begin"), sql("mark")))
        for _ in range(ROUNDS):
            row = (yield opening)[0]
            record, now = to_record(row), row[WIDTH]
            verdict = decide(record, claim.fingerprint, claim.owner, now)
            mine = row[WIDTH + 1] == MINE
            if mine and verdict in _ENDING:
                yield Batch((self._ended(verdict, claim, record), sql("commit"), sql("unlock")))
                continue
            if mine and verdict in _TO_ACT_ON:
                self.open = True
                return self._won(claim, verdict, record, now)
            yield Batch((sql("rollback"), sql("unlock")))
            return _refused(verdict, record, now)
        raise StoreUnavailableError(f"the record changed {ROUNDS} times while it was being claimed: ask again")

    def _join(self, claim: Claim) -> Steps[Claimed | Existing]:
        """Claim inside a transaction that was begun before, and may go on seeing what it saw before.

        A locking read of no row would lock a gap, and other keys with it. So a row is put there, and only where that
        fails is there one to read.
        """
        sql = self._sql
        described = self._described = of_claim(claim)
        for _ in range(ROUNDS):
            whose = (yield Batch((lock(sql, claim.digest, 0), sql("whose"))))[0][0]
            if whose != MINE:
                row = yield sql("find", digest=claim.digest)
                record, now = (to_record(row[0]), row[0][WIDTH]) if row else (None, (yield sql("now"))[0][0])
                return _refused(decide(record, claim.fingerprint, claim.owner, now), record, now)
            rows = yield sql("claim", **described, lease_us=claim.lease_us, key_us=claim.key_us, request=claim.request)
            if rows:
                now = rows[0][0]
                won = self._won(claim, Verdict.FREE, None, now)
                self._inserted = True
                self._seen = {
                    "seen_owner": claim.owner, "seen_epoch": 1, "seen_state": "claimed",
                    "seen_lease_until": now + claim.lease_us,
                }  # fmt: skip
                return won
            rows = yield sql("find_current", digest=claim.digest)
            if not rows:
                continue
            record, now = to_record(rows[0]), rows[0][WIDTH]
            verdict = decide(record, claim.fingerprint, claim.owner, now)
            if verdict in _ENDING:
                yield self._ended(verdict, claim, record)
                continue
            if verdict in _TO_ACT_ON:
                return self._won(claim, verdict, record, now)
            return Existing(verdict, record, now)
        raise StoreUnavailableError(f"the record changed {ROUNDS} times while it was being claimed: ask again")

    def _won(self, claim: Claim, verdict: Verdict, record: Record | None, now: Instant) -> Claimed:
        epoch = 1 if record is None else record.epoch + 1
        self._claim, self._claimed_at, self._inserted = claim, now, False
        self._seen = None if record is None else of_seen(record)
        self._own = own = Ownership(claim.digest, claim.owner, epoch)
        return Claimed(own, now, record if verdict is Verdict.TAKE_OVER else None)

    def _ended(self, verdict: Verdict, claim: Claim, record: Record | None) -> Any:
        """The statement that ends what a lost run left."""
        return self._sql(_ENDING[verdict], digest=claim.digest, key_us=claim.key_us, **of_seen(record))

    # --- ending -------------------------------------------------------------------------------------------------------

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool
    ) -> Steps[None]:
        """See Session.complete. Ends the transaction."""
        if not self.open:
            yield from MysqlSteps(self._sql).completed_before(own)
            return
        claim = self._claim
        if claim is None or own != self._own:
            yield from self.roll_back()
            raise lease_lost()
        sql = self._sql
        self.open, self._claim = False, None
        if self._inserted and not keep_effects:
            self._seen = None
        record = sql(
            "record" if self._seen is None else "record_over",
            **self._described,
            **of_response(response, key_us, body_us),
            **(self._seen or {}),
            epoch=own.epoch,
            created_at=self._claimed_at,
        )
        whole = (sql("commit"), sql("unlock"))
        rows: Rows
        if not keep_effects:
            # The lock of the key stays through the rollback, and the record is a transaction of its own.
            rows = yield Batch((sql("still_open"), sql("rollback"), record, *whole))
        elif self._seen is None:
            # Where it cannot go in, what stands behind it is not performed.
            rows = yield Batch((sql("still_open"), record, *whole))
        else:
            rows = yield Batch((sql("still_open"), record))
            if rows:
                yield Batch(whole)
        if not rows:
            yield Batch((sql("rollback"), sql("unlock")))
            raise lease_lost()

    def start_answer(self, own: Ownership, head: StoredResponse) -> Steps[None]:
        """See Session.start_answer."""
        key_us = 0 if self._claim is None else self._claim.key_us
        yield from self.complete(own, head._replace(body=None), key_us, key_us, keep_effects=True)

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> Steps[None]:
        """See Resumes.advance. The transaction goes on; where the point is elsewhere it is rolled back.

        The point does not move where the transaction is over: with it went the writes of the phase.
        """
        if not self.open:
            raise RuntimeError("a recovery point is moved inside a transaction that has begun")
        sql = self._sql
        moving = sql("advance", **own._asdict(), seen_point=seen or "", point=point, data=data)
        if not (yield Batch((sql("still_open"), sql("mark"), moving))):
            yield from self.roll_back()
            raise lease_lost()

    def roll_back(self) -> Steps[None]:
        """Release, hold, or leaving it unfinished: nothing was done."""
        if self.open:
            self.open, self._claim = False, None
            yield Batch((self._sql("rollback"), self._sql("unlock")))

    def left(self) -> None:
        """Its connection was taken away and rolled back."""
        self.open, self._claim = False, None


_ENDING: Final = {Verdict.HOLD: "hold_stale", Verdict.SETTLE: "settle_answered"}


def _refused(verdict: Verdict, record: Record | None, now: Instant) -> Existing:
    """Somebody else is at it, or it is decided. In doubt it is "in progress": asking again costs nothing."""
    return Existing(Verdict.IN_PROGRESS, None, now) if verdict in _TO_ACT_ON else Existing(verdict, record, now)
