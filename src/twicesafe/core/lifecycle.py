"""The life of a record: one table of states and events, and the one function that judges a record.

Rule 1: everything that decides what may happen to a record is in this file, and nowhere else. What the steps of an
operation ask for beside that is in settling.py, and when a worker tries again in turns.py.
Rule 2: this file does not know where records are kept, nor what a request is.

Invariants, cited by tests:

I1  One live claim per scoped key. A win means: the row read back carries my owner token.
I2  The claim comes before the effect.
I3  Only the owner token and epoch of the current claim renew, complete, release or hold; a late owner changes 0 rows,
    and that is an error it sees, inside a transaction a rollback.
I4  Another fingerprint never runs and never replays: checked first on every path, running and taking over included.
I5  A completed record is immutable until its retention ends.
I6  An unknown outcome is kept, not released, and never reported as failed.
I7  No record is visible across scopes.
I8  One operation, one key, the same bytes on every attempt.
I9  A message is visible if and only if its transaction committed; delivered at least once; its effect happens once.
I10 Recovery points only advance, in the transaction of their phase.
I11 The record is durable before the first byte of the answer leaves.
I12 Only the store's clock decides leases and expiry.

Theory of operation. A row stores one of three states; time makes seven standings of them. `claimed` is live while its
lease lasts and then stale, or answered when its answer had begun to leave. `completed` replays until its body's
retention ends, is then a tombstone, and is free when its key's retention ends. `unknown` does not age: only its owner,
a reconciler or an operator settles it. Nothing has to sweep for any of this to take effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeGuard

from twicesafe.core.record import Effects, Instant, Record, RecordState


class Standing(StrEnum):
    """What a row amounts to at a given instant."""

    FREE = "free"
    CLAIMED = "claimed"
    STALE = "stale"
    ANSWERED = "answered"
    COMPLETED = "completed"
    TOMBSTONE = "tombstone"
    UNKNOWN = "unknown"


class Event(StrEnum):
    """What can be asked of a record. The owner's events need its ownership; `claim` needs the same fingerprint."""

    CLAIM = "claim"
    RENEW = "renew"
    START_ANSWER = "start answer"
    COMPLETE = "complete"
    RELEASE = "release"
    HOLD = "hold"
    SETTLE = "settle"
    LEASE_ENDS = "lease ends"
    ANSWER_CUT = "lease ends, answer begun"
    BODY_ENDS = "body's retention ends"
    KEY_ENDS = "key's retention ends"


_S, _E = Standing, Event

TRANSITIONS: Final[Mapping[Standing, Mapping[Event, Standing]]] = MappingProxyType(
    {
        _S.FREE: {_E.CLAIM: _S.CLAIMED},
        _S.CLAIMED: {
            _E.RENEW: _S.CLAIMED,
            _E.START_ANSWER: _S.CLAIMED,
            _E.COMPLETE: _S.COMPLETED,
            _E.RELEASE: _S.FREE,
            _E.HOLD: _S.UNKNOWN,
            _E.LEASE_ENDS: _S.STALE,
            _E.ANSWER_CUT: _S.ANSWERED,
        },
        # A lease that ended is not yet a claim that was lost: until a rival takes over, the owner still owns it.
        _S.STALE: {
            _E.CLAIM: _S.CLAIMED,
            _E.RENEW: _S.CLAIMED,
            _E.START_ANSWER: _S.ANSWERED,
            _E.COMPLETE: _S.COMPLETED,
            _E.RELEASE: _S.FREE,
            _E.HOLD: _S.UNKNOWN,
        },
        _S.ANSWERED: {
            _E.RENEW: _S.CLAIMED,
            _E.COMPLETE: _S.COMPLETED,
            _E.HOLD: _S.UNKNOWN,
            _E.SETTLE: _S.TOMBSTONE,
        },
        _S.COMPLETED: {_E.BODY_ENDS: _S.TOMBSTONE, _E.KEY_ENDS: _S.FREE},
        _S.TOMBSTONE: {_E.KEY_ENDS: _S.FREE},
        # Its owner may still arrive and know the answer; a settled record is completed or gone.
        _S.UNKNOWN: {_E.COMPLETE: _S.COMPLETED, _E.SETTLE: _S.COMPLETED, _E.RELEASE: _S.FREE},
    }
)
"""Whatever is not in the table is refused and changes nothing."""


class Verdict(StrEnum):
    """What an attempt that wants to claim is to do with what it found."""

    FREE = "free"
    """Nothing is remembered under the key: claim it. An expired row may still lie there."""
    OWN = "own"
    """This very claim is in the row: its answer was lost on the way."""
    TAKE_OVER = "take over"
    """Its owner is gone and left nothing that a further run would double."""
    HOLD = "hold"
    """Its owner is gone and nobody knows what it did: record the outcome as unknown."""
    SETTLE = "settle"
    """Its owner is gone, but its answer had begun to leave: the work was done, the body is lost."""
    REPLAY = "replay"
    GONE = "gone"
    """Done, and the body is no longer kept."""
    IN_PROGRESS = "in progress"
    UNKNOWN = "unknown"
    MISMATCH = "mismatch"


AFTER_CRASH: Final[Mapping[Effects, Verdict]] = MappingProxyType(
    {
        Effects.TRANSACTIONAL: Verdict.TAKE_OVER,
        Effects.RESUMABLE: Verdict.TAKE_OVER,
        Effects.KEYED: Verdict.TAKE_OVER,
        Effects.OPAQUE: Verdict.HOLD,
    }
)
"""R13. The declaration counts that the lost run was made under, not the one in force now."""


class Matches(Protocol):
    """Anything that can tell whether a stored fingerprint is its own."""

    def matches(self, stored: bytes, /) -> bool: ...


def standing(record: Record | None, now: Instant) -> Standing:
    """What the row amounts to at `now`. A lease or retention that ends at `now` has ended."""
    if record is None:
        return Standing.FREE
    if record.state is RecordState.UNKNOWN:
        return Standing.UNKNOWN
    if record.state is RecordState.COMPLETED:
        if now >= record.key_until:
            return Standing.FREE
        kept = record.response is not None and record.response.body is not None and now < record.body_until
        return Standing.COMPLETED if kept else Standing.TOMBSTONE
    if now < record.lease_until:
        return Standing.CLAIMED
    return Standing.STALE if record.response is None else Standing.ANSWERED


def decide(record: Record | None, fingerprint: Matches, owner: bytes, now: Instant) -> Verdict:
    """The one judgment of a claim. Fingerprint first (I4): a remembered key never serves another request."""
    where = standing(record, now)
    if record is None or where is Standing.FREE:
        return Verdict.FREE
    if not fingerprint.matches(record.fingerprint):
        return Verdict.MISMATCH
    match where:
        case Standing.COMPLETED:
            return Verdict.REPLAY
        case Standing.TOMBSTONE:
            return Verdict.GONE
        case Standing.UNKNOWN:
            return Verdict.UNKNOWN
        case Standing.ANSWERED:
            return Verdict.SETTLE
        case _:
            if record.owner == owner:
                return Verdict.OWN
            if where is Standing.CLAIMED:
                return Verdict.IN_PROGRESS
            return _after_crash(record, now)


def abandoned(record: Record, now: Instant) -> Verdict | None:
    """What a bystander does about a claim whose owner is gone and that nobody may ever ask for again (R27).

    None: nothing, because it is none, or because the next attempt may still go on from it, and has the request to run.
    """
    where = standing(record, now)
    if where is Standing.ANSWERED:
        return Verdict.SETTLE
    if where is not Standing.STALE:
        return None
    verdict = _after_crash(record, now)
    if verdict is Verdict.TAKE_OVER:
        # Until the retention ends the key keeps other requests out (I4).
        return Verdict.FREE if now >= record.key_until else None
    return verdict


def outstanding(record: Record | None, now: Instant) -> TypeGuard[Record]:
    """Whether it waits for somebody: its outcome is unknown, or it broke off and a worker can go on with it."""
    where = standing(record, now)
    if record is None or where is Standing.UNKNOWN:
        return record is not None
    return where is Standing.STALE and record.effects is Effects.RESUMABLE


def _after_crash(record: Record, now: Instant) -> Verdict:
    if now >= record.key_until and record.effects is not Effects.TRANSACTIONAL:
        # Providers forget derived keys too: past the retention a second run could be a second charge (R25).
        return Verdict.HOLD
    return AFTER_CRASH[record.effects]
