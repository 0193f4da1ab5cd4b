"""What must never be so, said once more and in other words than the code's: the judge of the model.

Each rule names the invariant that it stands for.
"""

from __future__ import annotations

from typing import Final

from twicesafe.core.record import Effects, Instant, Record, RecordState
from twicesafe.testing.exploring import BrokenError

OPERATOR: Final = b"operator"
"""The token of those who are nobody's owner."""


def remembered(record: Record | None, now: Instant) -> bool:
    """Whether the key counts as used."""
    return record is not None and not (record.state is RecordState.COMPLETED and record.key_until <= now)


def stale(record: Record, now: Instant) -> bool:
    """Whether its owner has let its lease run out."""
    return record.state is RecordState.CLAIMED and record.lease_until <= now


def check_change(who: bytes, before: Record | None, after: Record | None, now: Instant) -> None:
    """One row's change by one statement, or one commit, of whoever has this token."""
    if before == after:
        return
    if before is None or after is None or (before.owner, before.epoch) != (after.owner, after.epoch):
        _check_hands(who, before, after, now)
        return
    mine = before.owner == who
    if before.state is RecordState.COMPLETED:
        dropped = before.response is not None and after == before._replace(response=before.response._replace(body=None))
        _must("I5", dropped and before.body_until <= now, f"a completed record changed to {after}")
    elif before.state is RecordState.UNKNOWN:
        _must("I6", mine or who == OPERATOR, "an unknown outcome was ended by somebody who does not know it")
        _must("I6", after.state is not RecordState.CLAIMED or who == OPERATOR, "an unknown outcome was claimed again")
    else:
        _must("I3", mine or stale(before, now), "somebody else changed a live claim")
        if not mine:
            _must("I3", after.state is not RecordState.CLAIMED, "somebody else changed a claim under its owner's name")
            _must(
                "I6",
                after.state is RecordState.UNKNOWN or before.response is not None,
                "somebody else ended a claim as done, whose answer never began",
            )
    _must("I4", before.fingerprint == after.fingerprint, "a remembered key changed its request")
    if before.recovery_point != after.recovery_point:
        _must("I10", mine or who == OPERATOR, "somebody else moved a recovery point")


def _check_hands(who: bytes, before: Record | None, after: Record | None, now: Instant) -> None:
    """A row came, went, or changed its owner."""
    if before is not None and after is None:
        if before.state is RecordState.COMPLETED:
            _must("I5", not remembered(before, now), "a completed record was forgotten before its time")
            return
        if before.state is RecordState.UNKNOWN:
            _must("I6", before.owner == who or who == OPERATOR, "an unknown outcome was forgotten")
            return
        old = stale(before, now) and before.key_until <= now and before.effects is not Effects.OPAQUE
        _must("I3", before.owner == who or old, "somebody else forgot a claim")
        return
    assert after is not None
    # A transaction that records an error in place of its effects comes with the token that it claimed by.
    _must("I1", after.owner == who, "a claim was made in somebody else's name")
    if before is None:
        _must("I3", after.epoch == 1, "a new record begins under another epoch")
        return
    _must("I3", after.epoch == before.epoch + 1, f"the epoch went from {before.epoch} to {after.epoch}")
    if not remembered(before, now):
        return
    _must("I5", before.state is not RecordState.COMPLETED, "a completed record was claimed again before its time")
    _must("I6", before.state is not RecordState.UNKNOWN, "an unknown outcome was claimed again")
    _must(
        "I12", before.lease_until <= now, f"a claim was taken over {before.lease_until - now} us before its lease ended"
    )
    _must("I4", before.fingerprint == after.fingerprint, "another request took a claim over")
    _must("I6", before.effects is not Effects.OPAQUE, "an opaque claim was taken over")
    _must("I6", before.response is None, "a claim was taken over whose answer had begun to leave")
    _must("I10", before.recovery_point == after.recovery_point, "a take-over moved the recovery point")


def must(invariant: str, holds: bool, otherwise: str) -> None:
    """BrokenError unless it holds."""
    if not holds:
        raise BrokenError(invariant, otherwise)


_must = must
