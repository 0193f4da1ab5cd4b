"""How long a key is remembered, and that nothing has to sweep for it."""

from __future__ import annotations

from datetime import timedelta

from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.testing.check import Checks
from twicesafe.testing.trial import A_WHILE, ANSWER, BODY, KEY, LEASE, OTHER_REQUEST, Trial, bounded, expect, us

CHAPTER = Checks()


@CHAPTER.check("C4 R20")
async def expiry_needs_no_purge(trial: Trial) -> None:
    """When the key's retention ends the next attempt runs, with any request, and not a microsecond sooner."""
    for n, request in enumerate((b"\x01same", OTHER_REQUEST)):
        own = await trial.completed(f"key-{n}", request=b"\x01same")
        trial.clock.advance(KEY - timedelta(microseconds=1))
        await trial.refused(Verdict.GONE, f"key-{n}", request=b"\x01same", when="just before the retention ends")
        trial.clock.advance(timedelta(microseconds=1))
        found = await trial.claim(f"key-{n}", request=request)
        expect(isinstance(found, Claimed), f"after the retention a claim was answered {found}")
        assert isinstance(found, Claimed)
        expect(found.previous is None, "an expired record was taken for one to go on from")
        await trial.nothing_moves(own, "the owner of the expired record")
        await trial.refused(Verdict.IN_PROGRESS, f"key-{n}", request=request, when="after the new claim")
        await trial.complete(found.ownership, ANSWER._replace(status=202))
        again = await trial.refused(Verdict.REPLAY, f"key-{n}", request=request, when="after the second run")
        assert again.record is not None and again.record.response is not None
        expect(again.record.response.status == 202, "the first run's answer came back after the second")


@CHAPTER.check("C4 I1")
async def one_of_many_runs_after_expiry(trial: Trial) -> None:
    """Of 20 attempts at once after expiry exactly one runs."""
    own = await trial.completed()
    trial.clock.advance(KEY)
    found = await trial.rival(trial.claim() for _ in range(20))
    winners = [one for one in found if isinstance(one, Claimed)]
    expect(len(winners) == 1, f"{len(winners)} of 20 won an expired key")
    told = {one.verdict for one in found if isinstance(one, Existing)}
    expect(told == {Verdict.IN_PROGRESS}, f"the others were told {', '.join(sorted(told))}")
    row = await trial.row(own.digest)
    expect(row is not None and row.ownership == winners[0].ownership, "the row does not carry the winner's token")


@CHAPTER.check("R20 A4")
async def a_body_goes_before_its_key(trial: Trial) -> None:
    """When the body's retention ends the key still says done, purged or not, until its own retention ends."""
    own = await trial.completed()
    trial.clock.advance(BODY - timedelta(microseconds=1))
    await trial.refused(Verdict.REPLAY, when="just before the body's retention ends")
    trial.clock.advance(timedelta(microseconds=1))
    await trial.refused(Verdict.GONE, when="after the body's retention")
    await _purge_all(trial, 10)
    row = await trial.row(own.digest)
    assert row is not None and row.response is not None
    expect(row.response == ANSWER._replace(body=None), f"without its body the answer is {row.response}")
    found = await trial.refused(Verdict.GONE, when="after the body was purged")
    expect(found.record == row, "a claim sees another row than a read")
    await trial.refused(Verdict.MISMATCH, request=OTHER_REQUEST, when="after the body was purged")
    expect(await _purge_all(trial, 10) == 0, "a tombstone was purged again and again")
    trial.clock.advance(KEY - BODY)
    await trial.won()


@CHAPTER.check("R20 I5 I6")
async def purging_takes_only_what_has_ended(trial: Trial) -> None:
    """In batches no larger than asked, until nothing is over; live, stale and unknown records stay as they are."""
    ended = [await trial.completed(f"ended-{n}") for n in range(25)]
    held = await trial.unknown("unknown")
    stale = await trial.won("stale", effects=Effects.OPAQUE)
    trial.clock.advance(KEY)
    live = [
        held,
        stale,
        await trial.won("live"),
        await trial.completed("completed"),
        await trial.completed("empty", ANSWER._replace(body=None)),
    ]
    before = [await trial.row(own.digest) for own in live]
    sizes = []
    while size := await trial.store.purge(10):
        sizes.append(size)
        expect(size <= 10 and len(sizes) <= 25, f"purging 10 at a time touched {sizes}")
    expect(sum(sizes) <= len(ended), f"{sum(sizes)} rows were touched where {len(ended)} had ended")
    for own in ended:
        expect(await trial.row(own.digest) is None, "an ended record is still there")
    expect([await trial.row(own.digest) for own in live] == before, "purging changed a record that had not ended")


@CHAPTER.check("R20 C6")
async def claims_go_on_while_purging(trial: Trial) -> None:
    """Claims of the very keys that are being purged each win once."""
    keys = [f"key-{n}" for n in range(40)]
    for key in keys:
        await trial.completed(key)
    trial.clock.advance(KEY)

    async def purge() -> list[Claimed | Existing]:
        while await trial.store.purge(5):
            pass
        return []

    async def rival() -> list[Claimed | Existing]:
        return [await trial.claim(key) for key in keys]

    found = await trial.rival([purge(), rival(), purge(), rival(), rival()])
    winners = [one for answers in found for one in answers if isinstance(one, Claimed)]
    expect(len(winners) == len(keys), f"{len(winners)} claims won {len(keys)} keys")
    for one in winners:
        row = await trial.row(one.ownership.digest)
        expect(row is not None and row.ownership == one.ownership, "a purge took a new claim's row")


@CHAPTER.check("R20")
async def retention_counts_from_completion(trial: Trial) -> None:
    """Key and body are kept for as long as the completion says, counted from it."""
    own = await trial.won()
    trial.clock.advance(LEASE - A_WHILE)
    await trial.store.complete(own, ANSWER, us(timedelta(hours=2)), us(timedelta(hours=1)))
    row = await trial.row(own.digest)
    assert row is not None
    now = trial.clock()
    expect(row.key_until == now + us(timedelta(hours=2)), "the key's retention ends at another time")
    expect(row.body_until == now + us(timedelta(hours=1)), "the body's retention ends at another time")
    keep_none = await trial.won("no body")
    await trial.store.complete(keep_none, ANSWER, us(KEY), 0)
    await trial.refused(Verdict.GONE, "no body", when="with a body's retention of 0")


async def _purge_all(trial: Trial, limit: int) -> int:
    async def purge() -> int:
        touched = 0
        while size := await trial.store.purge(limit):
            touched += size
        return touched

    return await bounded(purge(), "purging")
