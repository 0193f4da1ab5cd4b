"""What becomes of a claim whose owner went silent."""

from __future__ import annotations

from datetime import timedelta

from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, RecordState
from twicesafe.testing.check import Checks
from twicesafe.testing.trial import A_WHILE, ANSWER, BODY, KEY, LEASE, Trial, expect, us

CHAPTER = Checks()

HEAD = ANSWER._replace(body=None)


@CHAPTER.check("R13 B5")
async def the_declaration_decides(trial: Trial) -> None:
    """A stale claim is run again where its declaration allows that, and not a microsecond before its lease ends."""
    for effects in (Effects.KEYED, Effects.RESUMABLE, Effects.TRANSACTIONAL):
        own = await trial.won(effects, effects=effects)
        before = await trial.row(own.digest)
        assert before is not None
        trial.clock.advance(LEASE - timedelta(microseconds=1))
        await trial.refused(Verdict.IN_PROGRESS, effects, effects=effects, when="just before the lease ends")
        trial.clock.advance(timedelta(microseconds=1))
        found = await trial.claim(effects, effects=effects)
        expect(isinstance(found, Claimed), f"a stale {effects} claim was answered {found}")
        assert isinstance(found, Claimed)
        expect(found.previous == before, "the previous record is not the one that was left behind")
        row = await trial.row(own.digest)
        assert row is not None
        expect(row.ownership == found.ownership, "the row does not carry the new owner")
        expect(row.lease_until == trial.clock() + us(LEASE), "the new owner has no lease of its own")
        # What derived keys did downstream is remembered from the first call on (R25): no take-over prolongs that.
        expect(row.key_until == before.key_until, "a take-over moved the end of the first claim's retention")
        expect(row.created_at == before.created_at, "a take-over moved the first claim's beginning")


@CHAPTER.check("R13 I6")
async def an_opaque_claim_is_held(trial: Trial) -> None:
    """A stale opaque claim becomes an unknown outcome and is never run again, whatever the retry declares."""
    own = await trial.won(effects=Effects.OPAQUE)
    before = await trial.row(own.digest)
    assert before is not None
    trial.clock.advance(LEASE)
    for effects in (Effects.KEYED, Effects.OPAQUE, Effects.RESUMABLE):
        found = await trial.refused(Verdict.UNKNOWN, effects=effects, when="over a stale opaque claim")
        expected = before._replace(state=RecordState.UNKNOWN)
        expect(found.record == expected, f"it was answered with {found.record}")
        expect(await trial.row(own.digest) == expected, "the row is not held")


@CHAPTER.check("R13")
async def the_lost_runs_declaration_counts(trial: Trial) -> None:
    """An operation redeclared opaque still takes over what was claimed under keyed."""
    await trial.won(effects=Effects.KEYED)
    trial.clock.advance(LEASE)
    own = await trial.won(effects=Effects.OPAQUE)
    trial.clock.advance(LEASE)
    await trial.refused(Verdict.UNKNOWN, effects=Effects.KEYED, when="over a stale claim last made under opaque")
    await trial.complete(own)


@CHAPTER.check("R25 I6")
async def forgotten_derived_keys_are_not_used(trial: Trial) -> None:
    """Past its retention a stale claim is held even where it could have been run again before."""
    for effects in (Effects.KEYED, Effects.RESUMABLE):
        await trial.won(effects, effects=effects)
    trial.clock.advance(KEY)
    for effects in (Effects.KEYED, Effects.RESUMABLE):
        await trial.refused(Verdict.UNKNOWN, effects, effects=effects, when="past the retention of a stale claim")


@CHAPTER.check("I11 R18")
async def an_answer_that_began_to_leave_is_settled(trial: Trial) -> None:
    """A stale claim whose answer's head was recorded is completed without a body: done, never run again."""
    for effects in Effects:
        own = await trial.won(effects, effects=effects)
        await trial.store.start_answer(own, HEAD)
        row = await trial.row(own.digest)
        assert row is not None
        expect(row.state is RecordState.CLAIMED and row.response == HEAD, "the head is not durable")
        await trial.refused(Verdict.IN_PROGRESS, effects, effects=effects, when="while the answer leaves")
        await trial.store.renew(own, us(LEASE))
        trial.clock.advance(LEASE)
        found = await trial.refused(Verdict.GONE, effects, effects=effects, when="after the answer's end was lost")
        assert found.record is not None
        expect(found.record.state is RecordState.COMPLETED, f"it is {found.record.state}")
        expect(found.record.response == HEAD, "status and header lines are not those that were sent")
        expect(found.record.ownership == own, "its owner was changed")
        expect(await trial.row(own.digest) == found.record, "what was answered is not what stands")
    trial.clock.advance(KEY - A_WHILE)
    await trial.refused(Verdict.GONE, Effects.OPAQUE, when="within the retention after that")


@CHAPTER.check("I11 I6")
async def an_old_answer_is_settled_all_the_same(trial: Trial) -> None:
    """Nor is it run again where its retention went by while nobody asked."""
    own = await trial.won()
    await trial.store.start_answer(own, HEAD)
    trial.clock.advance(KEY + KEY)
    await trial.refused(Verdict.GONE, when="long after the answer's end was lost")
    await trial.refused(Verdict.GONE, when="asked twice")


@CHAPTER.check("I11 R18")
async def an_answer_that_left_is_completed(trial: Trial) -> None:
    """A stream that ended within bounds is completed with its body after its head had been recorded."""
    own = await trial.won()
    await trial.store.start_answer(own, HEAD)
    trial.clock.advance(LEASE + A_WHILE)
    await trial.complete(own)
    found = await trial.refused(Verdict.REPLAY, when="after a stream's completion")
    assert found.record is not None
    expect(found.record.response == ANSWER, "the replay is not what was streamed")


@CHAPTER.check("I1 C4")
async def one_of_many_takes_over(trial: Trial) -> None:
    """Of 20 rivals over one stale claim exactly one runs."""
    own = await trial.won(effects=Effects.KEYED)
    trial.clock.advance(LEASE)
    found = await trial.rival(trial.claim() for _ in range(20))
    winners = [one for one in found if isinstance(one, Claimed)]
    expect(len(winners) == 1, f"{len(winners)} of 20 took over")
    told = {one.verdict for one in found if isinstance(one, Existing)}
    expect(told == {Verdict.IN_PROGRESS}, f"the others were told {', '.join(sorted(told))}")
    row = await trial.row(own.digest)
    expect(row is not None and row.ownership == winners[0].ownership, "the row does not carry the winner's token")


@CHAPTER.check("I6 I1")
async def many_hold_one_outcome(trial: Trial) -> None:
    """20 rivals over one stale opaque claim are all told that its outcome is unknown."""
    await trial.won(effects=Effects.OPAQUE)
    trial.clock.advance(LEASE)
    found = await trial.rival(trial.claim() for _ in range(20))
    told = {"claimed" if isinstance(one, Claimed) else one.verdict for one in found}
    expect(told == {Verdict.UNKNOWN}, f"they were told {', '.join(sorted(told))}")


@CHAPTER.check("R12 A7")
async def a_renewed_lease_lasts(trial: Trial) -> None:
    """A renewed lease ends its length after the renewal, however short it was before."""
    own = await trial.won(lease=A_WHILE)
    await trial.store.renew(own, us(LEASE))
    trial.clock.advance(LEASE - A_WHILE)
    await trial.refused(Verdict.IN_PROGRESS, when="within a renewed lease")
    await trial.store.renew(own, us(BODY))
    trial.clock.advance(BODY - A_WHILE)
    await trial.refused(Verdict.IN_PROGRESS, when="within a lease renewed twice")
    trial.clock.advance(A_WHILE)
    taken = await trial.won()
    expect(taken.epoch == 2, "after the renewed lease nobody took over")
