"""Outcomes that nobody can prove yet."""

from __future__ import annotations

from secrets import token_bytes

from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, RecordState
from twicesafe.testing.check import Checks
from twicesafe.testing.trial import ANSWER, BODY, KEY, LEASE, Trial, expect, us

CHAPTER = Checks()


@CHAPTER.check("I6")
async def an_unknown_outcome_does_not_age(trial: Trial) -> None:
    """It outlives its lease and every retention, and no purge takes it."""
    own = await trial.unknown()
    row = await trial.row(own.digest)
    for duration in (LEASE, BODY, KEY, KEY * 365):
        trial.clock.advance(duration)
        await trial.store.purge()
        for effects in Effects:
            await trial.refused(Verdict.UNKNOWN, effects=effects, when=f"{duration} later")
    expect(await trial.row(own.digest) == row, "the row of an unknown outcome changed")


@CHAPTER.check("R26 I6")
async def an_operator_settles_it(trial: Trial) -> None:
    """Settled with an answer it replays that answer; settled with none the key is free; neither happens twice."""
    done, undone = await trial.unknown("done"), await trial.unknown("undone")
    settle = trial.store.settle
    expect(not await settle(done.digest, done.epoch + 1, ANSWER, us(KEY), us(BODY)), "another epoch was settled")
    expect(not await settle(token_bytes(32), 1, None, us(KEY), us(BODY)), "a row that is not there was settled")
    expect(await settle(done.digest, done.epoch, ANSWER, us(KEY), us(BODY)), "an unknown outcome was not settled")
    expect(await settle(undone.digest, undone.epoch, None, us(KEY), us(BODY)), "an unknown outcome was not released")
    found = await trial.refused(Verdict.REPLAY, "done", when="after it was settled as done")
    assert found.record is not None
    expect(found.record.response == ANSWER, "the replay is not what it was settled with")
    expect(found.record.key_until == trial.clock() + us(KEY), "its retention does not count from the settling")
    for response in (None, ANSWER):
        again = await settle(done.digest, done.epoch, response, us(KEY), us(BODY))
        expect(not again, "a settled outcome was settled again")
    await trial.won("undone")


@CHAPTER.check("R26 I3")
async def only_the_unknown_is_settled(trial: Trial) -> None:
    """A claim, live or stale, is nobody's to settle."""
    own = await trial.won(effects=Effects.OPAQUE)
    for when in ("live", "stale"):
        for response in (None, ANSWER):
            settled = await trial.store.settle(own.digest, own.epoch, response, us(KEY), us(BODY))
            expect(not settled, f"a {when} claim was settled")
        trial.clock.advance(LEASE)
    row = await trial.row(own.digest)
    expect(row is not None and row.state is RecordState.CLAIMED, "settling a claim changed it")
    await trial.complete(own)
