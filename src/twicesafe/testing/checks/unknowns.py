"""Outcomes that nobody can prove yet."""

from __future__ import annotations

from secrets import token_bytes
from typing import cast

from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Ownership, RecordState
from twicesafe.stores.contract import AsyncResumes
from twicesafe.testing.check import RESUMES, Checks
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
    another, nobody = done._replace(epoch=done.epoch + 1), Ownership(token_bytes(32), token_bytes(16), 1)
    expect(not await settle(another, ANSWER, us(KEY), us(BODY)), "another epoch was settled")
    expect(not await settle(nobody, None, us(KEY), us(BODY)), "a row that is not there was settled")
    expect(await settle(done, ANSWER, us(KEY), us(BODY)), "an unknown outcome was not settled")
    expect(await settle(undone, None, us(KEY), us(BODY)), "an unknown outcome was not released")
    found = await trial.refused(Verdict.REPLAY, "done", when="after it was settled as done")
    assert found.record is not None
    expect(found.record.response == ANSWER, "the replay is not what it was settled with")
    expect(found.record.key_until == trial.clock() + us(KEY), "its retention does not count from the settling")
    for response in (None, ANSWER):
        again = await settle(done, response, us(KEY), us(BODY))
        expect(not again, "a settled outcome was settled again")
    await trial.won("undone")


@CHAPTER.check("R26 I3")
async def a_late_settlement_is_of_no_other_claim(trial: Trial) -> None:
    """Settled as not done and claimed anew, a key has the same epoch: whoever judged its earlier life is late."""
    late = await trial.unknown()
    expect(await trial.store.settle(late, None, us(KEY), us(BODY)), "an unknown outcome was not released")
    own = await trial.unknown()
    stranger = own._replace(owner=token_bytes(16))
    before = await trial.row(own.digest)
    for who, ownership in (("of the key's earlier life", late), ("under another owner token", stranger)):
        for response in (None, ANSWER):
            settled = await trial.store.settle(ownership, response, us(KEY), us(BODY))
            expect(not settled, f"a settlement {who} settled the key")
            expect(await trial.row(own.digest) == before, f"a settlement {who} changed the row")
    expect(await trial.store.settle(own, ANSWER, us(KEY), us(BODY)), "an unknown outcome was not settled")


@CHAPTER.check("R24 I3", RESUMES)
async def only_what_was_judged_goes_on(trial: Trial) -> None:
    """An operation is let go on under the claim that was judged, not under a later one of the same key."""
    late = await trial.unknown(effects=Effects.RESUMABLE)
    expect(await trial.store.settle(late, None, us(KEY), us(BODY)), "an unknown outcome was not released")
    own = await trial.unknown(effects=Effects.RESUMABLE)
    before = await trial.row(own.digest)
    reopen = cast("AsyncResumes", trial.store).reopen
    for ownership in (late, own._replace(owner=token_bytes(16)), own._replace(epoch=own.epoch + 1)):
        expect(not await reopen(ownership, None, None, None), f"{ownership} let another claim's operation go on")
        expect(await trial.row(own.digest) == before, "letting another claim's operation go on changed the row")
    expect(await reopen(own, None, None, None), "an operation that was held does not go on")


@CHAPTER.check("R26 I3")
async def only_the_unknown_is_settled(trial: Trial) -> None:
    """A claim, live or stale, is nobody's to settle."""
    own = await trial.won(effects=Effects.OPAQUE)
    for when in ("live", "stale"):
        for response in (None, ANSWER):
            settled = await trial.store.settle(own, response, us(KEY), us(BODY))
            expect(not settled, f"a {when} claim was settled")
        trial.clock.advance(LEASE)
    row = await trial.row(own.digest)
    expect(row is not None and row.state is RecordState.CLAIMED, "settling a claim changed it")
    await trial.complete(own)
