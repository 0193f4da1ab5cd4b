"""Redis holds the claims, another store the records: what is completed or unknown survives whatever happens to Redis.

Theory of operation. A claim is won in Redis, and holds only if `records` remembers nothing that stands against it. What
ends as completed or unknown is in `records` before anybody is told, and in Redis afterwards, for the sake of speed: for
that the owner claims there what it has claimed here, under the same owner token. Of two owners that both think they
own the claim, because Redis forgot it in between, one is the first to do so; the other's answer is not recorded, and it
learns that it lost. What is only in progress is known to Redis alone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.lifecycle import Standing, Verdict, decide, standing
from twicesafe.core.record import Micros, Ownership, Record, RecordState, StoredResponse
from twicesafe.errors import LeaseLostError, StoreError
from twicesafe.stores.contract import Swept
from twicesafe.stores.redis_scripts import Asking
from twicesafe.stores.redis_steps import RedisSteps

SHORT: Final[Micros] = 30_000_000
"""The lease, in `records`, of a claim that is about to end there."""


class ToRecords(NamedTuple):
    """One call of a method of `records`."""

    method: str
    arguments: tuple[Any, ...]


REMEMBERED: Final = 100_000
"""Claims in progress in one process, of which it has to know what they said should Redis forget them."""


class DurableSteps:
    """RedisSteps, with records elsewhere."""

    def __init__(self, claims: RedisSteps) -> None:
        self._claims = claims
        self._running: dict[Ownership, Claim] = {}
        self._begun: dict[Ownership, Ownership] = {}
        """Claims in `records` of answers that have begun to leave."""

    # --- claiming -----------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Asking[Claimed | Existing]:
        """See Session.claim."""
        found: Claimed | Existing = yield from self._claims.claim(claim)
        if type(found) is Existing:
            if found.verdict in (Verdict.UNKNOWN, Verdict.GONE):
                return (yield from self._checked(claim, found))
            return found
        assert type(found) is Claimed
        try:
            kept: Found = yield ToRecords("read", (claim.digest,))
        except StoreError:
            # Nothing was begun under it: left behind, it would block its key, and an opaque one end as unknown. What
            # it followed, if anything, may have begun something: then it stays.
            if found.ownership.epoch == 1:
                with suppress(StoreError):
                    yield from self._claims.release(found.ownership)
            raise
        verdict = decide(kept.record, claim.fingerprint, claim.owner, kept.now)
        if verdict in (Verdict.FREE, Verdict.OWN, Verdict.TAKE_OVER):
            if len(self._running) >= REMEMBERED:
                del self._running[next(iter(self._running))]
            self._running[found.ownership] = claim
            return found
        existing = Existing(verdict, kept.record, kept.now)
        if verdict in (Verdict.HOLD, Verdict.SETTLE):
            existing = yield ToRecords("claim", (claim,))
        yield from self._learn(found.ownership, existing)
        return existing

    def _learn(self, own: Ownership, existing: Existing) -> Asking[None]:
        """Let Redis know what `records` remembers. Where it cannot, the next attempt learns it as this one did."""
        record = existing.record
        with suppress(StoreError):
            if existing.verdict is Verdict.REPLAY:
                assert record is not None and record.response is not None
                left = record.key_until - existing.now, record.body_until - existing.now
                yield from self._claims.complete(own, record.response, *left)
            else:
                yield from self._claims.release(own)

    def _checked(self, claim: Claim, found: Existing) -> Asking[Existing]:
        """Redis may have found out just now that an outcome is unknown, or that an answer was cut; and an unknown one
        may have been settled in `records` since. What is there counts."""
        assert found.record is not None
        kept: Found = yield ToRecords("read", (claim.digest,))
        if _is_free(kept):
            if found.verdict is Verdict.GONE:
                return found
            yield from self._hold_there(_as_claim(found.record, claim.lease_us))
            return found
        if _same_unknown(kept.record, found.record):
            return found
        verdict = decide(kept.record, claim.fingerprint, claim.owner, kept.now)
        if verdict in (Verdict.HOLD, Verdict.SETTLE):
            ended: Existing = yield ToRecords("claim", (claim,))
            return ended
        return Existing(verdict, kept.record, kept.now)

    # --- the owner ----------------------------------------------------------------------------------------------------

    def renew(self, own: Ownership, lease_us: Micros) -> Asking[None]:
        """See Session.renew. An answer that has begun to leave has a claim in `records` too."""
        yield from self._claims.renew(own, lease_us)
        begun = self._begun.get(own)
        if begun is not None:
            yield ToRecords("renew", (begun, lease_us))

    def start_answer(self, own: Ownership, head: StoredResponse) -> Asking[None]:
        """See Session.start_answer."""
        claim = yield from self._own_claim(own)
        there = yield from self._claim_there(claim)
        if there is None:
            raise _lost()
        yield ToRecords("start_answer", (there, head))
        self._begun[own] = there
        with suppress(StoreError):
            yield from self._claims.start_answer(own, head)

    def complete(self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros) -> Asking[None]:
        """See Session.complete. Redis may be away: `records` decides."""
        try:
            claim = yield from self._own_claim(own)
        except LeaseLostError:
            kept: Found = yield ToRecords("read", (own.digest,))
            record = None if _is_free(kept) else kept.record
            if record is None or record.owner != own.owner or record.state is not RecordState.COMPLETED:
                raise
            return  # completed before, and forgotten by Redis since
        there = yield from self._claim_there(claim)
        if there is not None:
            yield ToRecords("complete", (there, response, key_us, body_us))
        self._forget(own)
        with suppress(StoreError):
            yield from self._claims.complete(own, response, key_us, body_us)

    def release(self, own: Ownership) -> Asking[None]:
        """See Session.release. `records` has the claim too where it was held, or its answer had begun to leave."""
        kept: Found = yield ToRecords("read", (own.digest,))
        if kept.record is not None and kept.record.owner == own.owner:
            yield ToRecords("release", (kept.record.ownership,))
        yield from self._claims.release(own)
        self._forget(own)

    def hold(self, own: Ownership) -> Asking[None]:
        """See Session.hold."""
        claim = yield from self._own_claim(own)
        yield from self._hold_there(claim)
        self._forget(own)
        with suppress(StoreError):
            yield from self._claims.hold(own)

    def _own_claim(self, own: Ownership) -> Asking[Claim]:
        """What the owner claimed. LeaseLostError where Redis says that the claim is somebody else's. Where it has
        forgotten the claim, or cannot be asked, this process remembers it."""
        claim = self._running.get(own)
        try:
            found = yield from self._claims.read(own.digest)
        except StoreError:
            if claim is None:
                raise
            return claim
        record = found.record
        if record is not None and record.ownership == own:
            return _as_claim(record, SHORT) if claim is None else claim
        if record is not None or claim is None:
            self._forget(own)
            raise _lost()
        return claim

    def _claim_there(self, claim: Claim) -> Asking[Ownership | None]:
        """The owner's claim in `records`; None where it has completed there before. LeaseLostError where another was
        first, or the outcome was settled."""
        found: Claimed | Existing = yield ToRecords("claim", (claim,))
        if type(found) is Claimed:
            return found.ownership
        assert type(found) is Existing
        record = found.record
        if record is None or record.owner != claim.owner:
            raise _lost()
        return record.ownership if record.state is RecordState.UNKNOWN else None

    def _hold_there(self, claim: Claim) -> Asking[None]:
        there = yield from self._claim_there(claim)
        if there is None:
            raise _lost()
        yield ToRecords("hold", (there,))

    def _forget(self, own: Ownership) -> None:
        self._running.pop(own, None)
        self._begun.pop(own, None)

    # --- everybody else -----------------------------------------------------------------------------------------------

    def read(self, digest: bytes) -> Asking[Found]:
        """See Store.read. What `records` remembers counts; when an unknown outcome was claimed, Redis knows."""
        kept: Found = yield ToRecords("read", (digest,))
        if not _is_free(kept) and kept.record is not None and kept.record.state is not RecordState.UNKNOWN:
            return kept
        try:
            here = yield from self._claims.read(digest)
        except StoreError:
            if _is_free(kept):
                raise
            return kept
        return here if _is_free(kept) or _same_unknown(kept.record, here.record) else kept

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> Asking[bool]:
        """See Store.settle. Released, Redis forgets it first; completed, `records` knows it first: cut short in
        between, it can be settled again."""
        kept: Found = yield ToRecords("read", (own.digest,))
        here = (yield from self._claims.read(own.digest)).record
        if here is not None and (here.state is not RecordState.UNKNOWN or here.owner != own.owner):
            here = None
        if _is_free(kept):
            if here is None or here.ownership != own:
                return False
            yield from self._hold_there(_as_claim(here, SHORT))
            kept = yield ToRecords("read", (own.digest,))
        if here is not None and _same_unknown(kept.record, here) and own == here.ownership:
            assert kept.record is not None
            own = kept.record.ownership
        if response is None and here is not None and kept.record is not None and kept.record.ownership == own:
            yield from self._claims.settle(here.ownership, None, key_us, body_us)
        done: bool = yield ToRecords("settle", (own, response, key_us, body_us))
        if done and response is not None and here is not None:
            with suppress(StoreError):
                yield from self._claims.settle(here.ownership, response, key_us, body_us)
        return done

    def settle_stale(self, look_at: int) -> Asking[Swept]:
        """See SettlesStale.settle_stale. `records` is first to learn how a claim ended."""
        return (yield from self._claims.settle_stale(look_at, self._end_there))

    def _end_there(self, record: Record) -> Asking[None]:
        claim = _as_claim(record, SHORT)
        if record.response is None:
            # Where somebody else has ended it there, the next attempt finds that out.
            with suppress(LeaseLostError):
                yield from self._hold_there(claim)
            return
        found: Claimed | Existing = yield ToRecords("claim", (claim,))
        if type(found) is Claimed:
            yield ToRecords("complete", (found.ownership, record.response, claim.key_us, 0))


def _is_free(found: Found) -> bool:
    return standing(found.record, found.now) is Standing.FREE


def _same_unknown(there: Record | None, here: Record | None) -> bool:
    """Whether both know of one unknown outcome."""
    if there is None or here is None or there.owner != here.owner:
        return False
    return there.state is RecordState.UNKNOWN and here.state is RecordState.UNKNOWN


def _as_claim(record: Record, lease_us: Micros) -> Claim:
    """The claim that made `record`."""
    return Claim(
        record.digest, record.scope, record.operation, record.key_hint, GivenFingerprint(record.fingerprint),
        record.effects, record.owner, lease_us, max(1, record.key_until - record.created_at), record.request,
    )  # fmt: skip


def _lost() -> LeaseLostError:
    return LeaseLostError("the claim is no longer this owner's: nothing was changed")
