"""The leased way: each statement commits by itself, and every change is conditioned on what it was decided on.

The generators hold no decision of their own: lifecycle.decide() judges, this finds the statement for its verdict.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.lifecycle import Verdict, abandoned, decide
from twicesafe.core.record import Instant, Micros, Ownership, Record, RecordState, StoredResponse
from twicesafe.core.turns import goes_on_at_once
from twicesafe.errors import LeaseLostError, StoreError, StoreUnavailableError
from twicesafe.stores.contract import AuditEntry, Outstanding, Swept
from twicesafe.stores.sql.advisory import lock_keys
from twicesafe.stores.sql.rows import WIDTH, check_lasting, of_claim, of_response, of_seen, to_record
from twicesafe.stores.sql.settled_here import SettledHere
from twicesafe.stores.sql.statements import Dialect, Queries
from twicesafe.stores.steps import Batch, Statement, Step, Steps

LOOKED_AT_FOR_ONE: Final = 20
"""A sweep ends at most one stale claim for so many records that it may look at: each is a statement of its own."""

ROUNDS: Final = 16
"""How often a claim begins again because the row changed under it. Each round somebody else made progress."""


class SqlSteps:
    """Every method of the leased way, as steps."""

    def __init__(self, sql: Queries) -> None:
        self._sql = sql
        # Writers of SQLite exclude each other and readers do not wait: a replay or a conflict should only read. Over
        # a network the round trip is the cost, and most claims are first ones.
        self._looks_first = sql.dialect is Dialect.SQLITE
        self.settled_here = SettledHere()
        self._bodies_left = False
        """Whether purging goes on with bodies. Looking for ended keys passes every ended body that is still there, and
        looking for bodies every ended key, so of many each is looked for alone until there are few."""
        self._swept = self.FROM_THE_START
        """How far the sweep for stale claims has come: a place in the table, as `sweep_to` tells it."""

    # --- claiming -----------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Steps[Claimed | Existing]:
        """See Session.claim."""
        sql, digest, owner = self._sql, claim.digest, claim.owner
        if claim.seen is not None and (won := (yield from self.go_on(claim, claim.seen))) is not None:
            return won
        insert = not self._looks_first and digest not in self.settled_here
        for _ in range(ROUNDS):
            if insert:
                rows = yield self._insertion(claim)
                if rows and rows[0][0] == owner:
                    return Claimed(Ownership(digest, owner, 1), rows[0][1])
            rows = yield sql("find", digest=digest)
            if not rows:
                # Not there, or vanished since it was in the way.
                insert = True
                continue
            record, now = to_record(rows[0]), rows[0][WIDTH]
            insert = False
            verdict = decide(record, claim.fingerprint, owner, now)
            judge = self._JUDGED.get(verdict)
            if judge is None or record is None:
                if record is not None and record.state is RecordState.COMPLETED:
                    self.settled_here.add(digest)
                return Existing(verdict, record, now)
            judged = yield from judge(self, claim, record)
            if judged is not None:
                return judged
        raise StoreUnavailableError(f"the record changed {ROUNDS} times while it was being claimed: ask again")

    def _insertion(self, claim: Claim) -> Statement:
        return self._sql(
            "claim", **of_claim(claim), lease_us=claim.lease_us, key_us=claim.key_us, request=claim.request
        )

    def _claim_expired(self, claim: Claim, seen: Record) -> Steps[Claimed | Existing | None]:
        rows = yield self._sql(
            "claim_expired",
            **of_claim(claim),
            **of_seen(seen),
            lease_us=claim.lease_us,
            key_us=claim.key_us,
            request=claim.request,
        )
        return Claimed(Ownership(claim.digest, claim.owner, rows[0][0]), rows[0][1]) if rows else None

    def _take_over(self, claim: Claim, seen: Record) -> Steps[Claimed | Existing | None]:
        rows = yield self._sql(
            "take_over", **of_claim(claim), **of_seen(seen), lease_us=claim.lease_us, request=claim.request
        )
        return Claimed(Ownership(claim.digest, claim.owner, seen.epoch + 1), rows[0][0], seen) if rows else None

    def go_on(self, claim: Claim, seen: Record) -> Steps[Claimed | Existing | None]:
        """Take over what was seen a while ago; None where it is no longer so, or is for another verdict."""
        if decide(seen, claim.fingerprint, claim.owner, seen.lease_until) is not Verdict.TAKE_OVER:
            return None
        return (yield from self._take_over(claim, seen))

    def _own(self, claim: Claim, seen: Record) -> Steps[Claimed | Existing | None]:
        """The reply was lost on the way; by now the lease may be over, so it begins again.

        Under a later epoch it may have been a take-over, and then somebody before may have done something: as long as
        nobody knows better, that is what a lost run left.
        """
        own = seen.ownership
        rows = yield self._sql("renew", **own._asdict(), lease_us=claim.lease_us)
        return Claimed(own, rows[0][0], seen if seen.epoch > 1 else None) if rows else None

    def hold_stale(self, claim: Claim, seen: Record) -> Steps[Claimed | Existing | None]:
        rows = yield self._sql("hold_stale", digest=claim.digest, **of_seen(seen))
        return Existing(Verdict.UNKNOWN, to_record(rows[0]), rows[0][WIDTH]) if rows else None

    def settle_answered(self, claim: Claim, seen: Record) -> Steps[Claimed | Existing | None]:
        rows = yield self._sql("settle_answered", digest=claim.digest, key_us=claim.key_us, **of_seen(seen))
        return Existing(Verdict.GONE, to_record(rows[0]), rows[0][WIDTH]) if rows else None

    _JUDGED: Final = {
        Verdict.FREE: _claim_expired,
        Verdict.OWN: _own,
        Verdict.TAKE_OVER: _take_over,
        Verdict.HOLD: hold_stale,
        Verdict.SETTLE: settle_answered,
    }
    """What a verdict does to the row; where that gives None the row had changed. Other verdicts are final."""

    # --- the owner ----------------------------------------------------------------------------------------------------

    def renew(self, own: Ownership, lease_us: Micros) -> Steps[None]:
        """See Session.renew."""
        check_lasting(lease_us)
        if not (yield self._sql("renew", **own._asdict(), lease_us=lease_us)):
            raise lease_lost()

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> Steps[None]:
        """See Resumes.advance."""
        if not (yield self._sql("advance", **own._asdict(), seen_point=seen or "", point=point, data=data)):
            raise lease_lost()

    def start_answer(self, own: Ownership, head: StoredResponse) -> Steps[None]:
        """See Session.start_answer."""
        if not (yield self._sql("start_answer", **own._asdict(), **of_response(head, 0, 0))):
            raise lease_lost()

    def complete(self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros) -> Steps[None]:
        """See Session.complete."""
        if not (yield self._sql("complete", **own._asdict(), **of_response(response, key_us, body_us))):
            yield from self.completed_before(own)
        self.settled_here.add(own.digest)

    def completed_before(self, own: Ownership) -> Steps[None]:
        """LeaseLostError unless this very owner has completed it already."""
        rows = yield self._sql("find", digest=own.digest)
        record = to_record(rows[0]) if rows else None
        if record is None or record.ownership != own or record.state is not RecordState.COMPLETED:
            raise lease_lost()

    def release(self, own: Ownership) -> Steps[None]:
        """See Session.release."""
        if not (yield self._sql("release", **own._asdict())):
            raise lease_lost()

    def hold(self, own: Ownership) -> Steps[None]:
        """See Session.hold."""
        if not (yield self._sql("hold", **own._asdict())):
            raise lease_lost()

    # --- everybody else -----------------------------------------------------------------------------------------------

    def read(self, digest: bytes) -> Steps[Found]:
        """See Store.read. On SQLite it must be performed while writers are kept out."""
        find = self._sql("find", digest=digest)
        if self._sql.dialect is Dialect.SQLITE:
            return (yield from self._found(find))
        wait = self._sql("await_transaction", **lock_keys(digest))
        found = yield from self._found(Batch((self._sql("begin"), wait, find)))
        yield self._sql("rollback")
        return found

    def glance(self, digest: bytes) -> Steps[Found]:
        """See Glances.glance."""
        row = (yield self._sql("look", digest=digest))[0]
        return Found(to_record(row), row[WIDTH])

    def _found(self, find: Step) -> Steps[Found]:
        rows = yield find
        if rows:
            return Found(to_record(rows[0]), rows[0][WIDTH])
        return Found(None, (yield self._sql("now"))[0][0])

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> Steps[bool]:
        """See Store.settle."""
        if response is None:
            rows = yield self._sql("settle_not_done", **own._asdict())
        else:
            rows = yield self._sql("settle", **own._asdict(), **of_response(response, key_us, body_us))
        return bool(rows)

    def now(self) -> Steps[Instant]:
        """See Store.now."""
        now: Instant = (yield self._sql("now"))[0][0]
        return now

    def purge(self, limit: int) -> Steps[int]:
        """See Store.purge."""
        deleted = 0
        if not self._bodies_left:
            deleted = len((yield self._sql("purge_keys", limit=limit)))
            if deleted >= limit:
                return deleted
        dropped = len((yield self._sql("purge_bodies", limit=limit)))
        self._bodies_left = dropped >= limit
        return deleted + dropped

    def settle_stale(self, look_at: int) -> Steps[Swept]:
        """See SettlesStale.settle_stale."""
        after, most = self._swept, max(1, look_at // LOOKED_AT_FOR_ONE)
        place, last = (yield self._sql("sweep_to", after=after, look_at=look_at))[0]
        settled, damage = 0, None
        rows = () if place is None else (yield self._sql("stale", after=after, place=place, most=most))
        for row in rows:
            try:
                record = to_record(row)
            except StoreError as error:
                damage = error
                continue
            verdict = None if record is None else abandoned(record, row[WIDTH])
            if record is None or verdict is None:
                continue
            seen = of_seen(record)
            # What it asks to be remembered for from now on is what its first claim asked for.
            key_us = max(1, record.key_until - record.created_at)
            ended = yield self._sql(self._ABANDONED[verdict], digest=record.digest, key_us=key_us, **seen)
            settled += len(ended)
        if len(rows) == most and settled:
            # There may be more of them here: a server full of claims went down.
            return Swept(settled, True)
        self._swept = self.FROM_THE_START if last else place
        if damage is not None:
            # The others are ended, and the next call goes on behind it.
            raise damage
        return Swept(settled, not last)

    def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> Steps[bool]:
        """See Resumes.reopen."""
        at_once = int(goes_on_at_once(point))
        rows = yield self._sql(
            "reopen", **own._asdict(), seen_point=seen or "", point=point, data=data, at_once=at_once
        )
        return bool(rows)

    def audit(self, entry: AuditEntry) -> Steps[None]:
        """See Audits.audit."""
        fields = entry._asdict()
        del fields["at"], fields["outcome"]
        yield self._sql("audit", **fields)

    def audited(self, entry: AuditEntry, outcome: str) -> Steps[None]:
        """See Audits.audited."""
        yield self._sql("audit_outcome", id=entry.id, outcome=outcome)

    def audits(self, digest: bytes) -> Steps[list[AuditEntry]]:
        """See Audits.audits."""
        rows = yield self._sql("audits", digest=digest)
        return [AuditEntry(bytes(row[0]), row[1], bytes(row[2]), *row[3:]) for row in rows]

    FROM_THE_START: object = 0
    """Where a look through the table begins."""

    def outstanding(self, after: object, look_at: int) -> Steps[Outstanding]:
        """See Resumes.outstanding."""
        if after is None:
            after = self.FROM_THE_START
        place, last = (yield self._sql("sweep_to", after=after, look_at=look_at))[0]
        rows = () if place is None else (yield self._sql("outstanding", after=after, place=place))
        now = rows[0][WIDTH] if rows else 0
        records = []
        for row in rows:
            # What cannot be read hides no other; whoever asks for its key is told.
            with suppress(StoreError):
                records.append(to_record(row))
        return Outstanding(tuple(filter(None, records)), now, None if last or place is None else place)

    _ABANDONED: Final = {
        Verdict.HOLD: "hold_stale",
        Verdict.SETTLE: "settle_answered",
        Verdict.FREE: "forget_stale",
    }


def lease_lost() -> LeaseLostError:
    """I3. Says nothing of whose it is now: that belongs to somebody else."""
    return LeaseLostError("the claim is no longer this owner's: nothing was changed")
