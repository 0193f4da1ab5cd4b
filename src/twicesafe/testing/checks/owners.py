"""Who may change a record, and who is too late."""

from __future__ import annotations

from secrets import token_bytes

from twicesafe.core.claims import Claimed
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Ownership, RecordState
from twicesafe.testing.check import Checks
from twicesafe.testing.trial import ANSWER, KEY, LEASE, Trial, expect, us

CHAPTER = Checks()


@CHAPTER.check("I3 B4")
async def a_late_owner_changes_nothing(trial: Trial) -> None:
    """After a take-over the late owner's every write raises LeaseLostError, and rivals are still refused."""
    late = await trial.won(effects=Effects.KEYED)
    trial.clock.advance(LEASE)
    own = await trial.won(effects=Effects.KEYED)
    await trial.nothing_moves(late, "the late owner")
    await trial.refused(Verdict.IN_PROGRESS, when="after a late owner's writes")
    await trial.complete(own)
    await trial.nothing_moves(late, "the late owner of a completed record")
    found = await trial.refused(Verdict.REPLAY, when="after the new owner completed")
    assert found.record is not None
    expect(found.record.response == ANSWER, "the new owner's answer is not what is replayed")


@CHAPTER.check("I3")
async def owner_and_epoch_both_count(trial: Trial) -> None:
    """Neither the right token with another epoch nor the right epoch with another token owns anything."""
    own = await trial.won()
    await trial.nothing_moves(own._replace(epoch=own.epoch + 1), "the owner under another epoch")
    await trial.nothing_moves(own._replace(epoch=0), "the owner under epoch 0")
    await trial.nothing_moves(own._replace(owner=token_bytes(16)), "a stranger under the right epoch")
    await trial.nothing_moves(own._replace(owner=bytes(16)), "nobody")
    await trial.complete(own)


@CHAPTER.check("I3 C6")
async def nothing_is_owned_where_nothing_is(trial: Trial) -> None:
    """Writes for a row that is not there raise LeaseLostError instead of passing in silence."""
    await trial.nothing_moves(Ownership(bytes(32), token_bytes(16), 1), "the owner of no row")
    own = await trial.won()
    await trial.store.release(own)
    await trial.nothing_moves(own, "the owner of a released row")


@CHAPTER.check("I3 R12")
async def a_slow_owner_still_owns(trial: Trial) -> None:
    """A lease that ended is not a claim that was lost: until somebody takes over, its owner may renew and complete."""
    own = await trial.won()
    trial.clock.advance(LEASE + LEASE)
    await trial.store.renew(own, us(LEASE))
    await trial.refused(Verdict.IN_PROGRESS, when="after a late renewal that nobody had forestalled")
    trial.clock.advance(LEASE)
    await trial.complete(own)
    await trial.refused(Verdict.REPLAY, when="after a late completion that nobody had forestalled")
    for effects, end in ((Effects.OPAQUE, trial.store.hold), (Effects.KEYED, trial.store.release)):
        own = await trial.won(effects, effects=effects)
        trial.clock.advance(LEASE)
        await end(own)


@CHAPTER.check("R15 I3")
async def a_released_key_is_free(trial: Trial) -> None:
    """After a release the next attempt runs, with another request too, and the old owner owns nothing."""
    own = await trial.won()
    await trial.store.release(own)
    row = await trial.row(own.digest)
    expect(row is None, f"a released row reads as {row}")
    again = await trial.claim(request=b"\x01another")
    expect(isinstance(again, Claimed) and again.previous is None, f"a released key was answered {again}")
    await trial.nothing_moves(own, "the owner that released")


@CHAPTER.check("I5 I3")
async def a_completed_record_stays(trial: Trial) -> None:
    """Nobody changes a completed record before its retention ends: neither its owner, nor an operator."""
    own = await trial.completed()
    before = await trial.row(own.digest)
    store = trial.store
    await trial.lost(store.renew(own, us(LEASE)), "renewing a completed record")
    await trial.lost(store.start_answer(own, ANSWER._replace(body=None)), "answering a completed record again")
    await trial.lost(store.hold(own), "holding a completed record")
    await trial.lost(store.release(own), "releasing a completed record")
    for response in (None, ANSWER._replace(status=500)):
        settled = await store.settle(own, response, us(KEY), us(KEY))
        expect(not settled, "a completed record was settled")
    expect(await trial.row(own.digest) == before, "the completed record was changed")


@CHAPTER.check("B6 I5")
async def completing_twice_is_completing_once(trial: Trial) -> None:
    """Asked again after a lost reply, a completion succeeds and changes nothing, not even its retention."""
    own = await trial.completed()
    before = await trial.row(own.digest)
    trial.clock.advance(LEASE)
    await trial.complete(own)
    await trial.complete(own, ANSWER._replace(status=500, body=b"another"))
    expect(await trial.row(own.digest) == before, "completing again changed the record")


@CHAPTER.check("I6 R14")
async def an_unknown_outcome_is_its_owners_to_complete(trial: Trial) -> None:
    """The owner of an unknown outcome knows best: it completes it, or says that nothing was done."""
    own = await trial.won("slow", effects=Effects.OPAQUE)
    trial.clock.advance(LEASE)
    await trial.refused(Verdict.UNKNOWN, "slow", when="over a stale opaque claim")
    await trial.lost(trial.store.renew(own, us(LEASE)), "renewing an unknown outcome")
    await trial.complete(own)
    found = await trial.refused(Verdict.REPLAY, "slow", when="after its owner completed an unknown outcome")
    assert found.record is not None
    expect(found.record.response == ANSWER, "the replay is not the owner's answer")
    held = await trial.unknown("held")
    row = await trial.row(held.digest)
    expect(row is not None and row.state is RecordState.UNKNOWN, "holding did not make the outcome unknown")
    await trial.store.release(held)
    await trial.won("held")
