"""What becomes of claims whose owner is gone and that nobody asks for again."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, RecordState
from twicesafe.stores.contract import AsyncSettlesStale
from twicesafe.testing.check import SETTLES_STALE, Checks
from twicesafe.testing.results import CheckFailedError
from twicesafe.testing.trial import ANSWER, KEY, LEASE, Trial, bounded, expect, us

CHAPTER = Checks()

CALLS = 1000
"""After which a sweep is taken never to end."""


@CHAPTER.check("R27 R13 I6", SETTLES_STALE)
async def a_stale_opaque_claim_is_found_and_held(trial: Trial) -> None:
    """An opaque claim whose lease is over becomes unknown, asked for or not, and not a microsecond sooner."""
    own = await trial.won(effects=Effects.OPAQUE)
    trial.clock.advance(LEASE - timedelta(microseconds=1))
    expect(await _swept(trial) == 0, "a live claim was settled")
    trial.clock.advance(timedelta(microseconds=1))
    expect(await _swept(trial) == 1, "a stale opaque claim was not settled")
    row = await trial.row(own.digest)
    expect(row is not None and row.state is RecordState.UNKNOWN, f"a stale opaque claim became {row}")
    expect(row is not None and row.ownership == own, "another ownership stands in the row")
    expect(await _swept(trial) == 0, "an unknown outcome was settled by a sweep")
    await trial.refused(Verdict.UNKNOWN, when="after the sweep")
    # The owner knows best, and may be late.
    await trial.complete(own)
    await trial.refused(Verdict.REPLAY, when="after the late owner")


@CHAPTER.check("R27 R18 I11", SETTLES_STALE)
async def a_cut_answer_is_found_and_completed(trial: Trial) -> None:
    """A claim whose answer had begun to leave is done: completed without a body, its key remembered from then on."""
    retention = timedelta(hours=7)
    own = await trial.won(retention=retention)
    await trial.store.start_answer(own, ANSWER._replace(body=None))
    trial.clock.advance(LEASE)
    expect(await _swept(trial) == 1, "an answer that was cut was not settled")
    row = await trial.row(own.digest)
    assert row is not None
    expect(row.state is RecordState.COMPLETED, f"an answer that was cut became {row.state}")
    expect(row.response == ANSWER._replace(body=None), f"its answer became {row.response}")
    expect(row.key_until == trial.clock() + us(retention), "its key is remembered for another time")
    await trial.refused(Verdict.GONE, when="after the sweep")


@CHAPTER.check("R27 R13 R25 I4", SETTLES_STALE)
async def what_can_be_run_again_waits_for_its_retry(trial: Trial) -> None:
    """A stale claim that may be taken over is left for it while its key is remembered, and then ends too."""
    kept = {}
    for effects in (Effects.KEYED, Effects.RESUMABLE, Effects.TRANSACTIONAL):
        kept[effects] = await trial.won(effects, effects=effects)
    trial.clock.advance(KEY - timedelta(microseconds=1))
    expect(await _swept(trial) == 0, "a claim that may still be taken over was settled")
    trial.clock.advance(timedelta(microseconds=1))
    expect(await _swept(trial) == 3, "a claim stayed in progress for ever")
    for effects, own in kept.items():
        row = await trial.row(own.digest)
        if effects is Effects.TRANSACTIONAL:
            expect(row is None, f"a claim that left nothing behind became {row}")
        else:
            expect(row is not None and row.state is RecordState.UNKNOWN, f"a {effects} claim became {row}")


@CHAPTER.check("R27 I3 I5", SETTLES_STALE)
async def a_sweep_comes_past_every_record(trial: Trial) -> None:
    """In small portions it finds every stale claim among many records, and changes nothing else."""
    lasting = [await trial.completed(f"completed-{n}") for n in range(30)]
    stale = [await trial.won(f"stale-{n}", effects=Effects.OPAQUE) for n in range(5)]
    lasting += [await trial.unknown(f"unknown-{n}") for n in range(3)]
    stale += [await trial.won(f"late-{n}", effects=Effects.OPAQUE) for n in range(5)]
    trial.clock.advance(LEASE)
    lasting += [await trial.won(f"live-{n}", effects=Effects.OPAQUE) for n in range(5)]
    before = [await trial.row(own.digest) for own in lasting]
    expect(await _swept(trial, look_at=7) == len(stale), "a sweep did not settle what was stale, and only that")
    for own in stale:
        row = await trial.row(own.digest)
        expect(row is not None and row.state is RecordState.UNKNOWN, f"a stale claim became {row}")
    expect([await trial.row(own.digest) for own in lasting] == before, "a sweep changed another record")


@CHAPTER.check("R27", SETTLES_STALE)
async def a_sweep_ends_all_that_a_lost_server_left(trial: Trial) -> None:
    """Many stale claims beside one another, among others that wait for their retry, are ended to the last one."""
    for n in range(30):
        await trial.won(f"keyed-{n}")
    lost = [await trial.won(f"lost-{n}", effects=Effects.OPAQUE) for n in range(30)]
    trial.clock.advance(LEASE)
    expect(await _swept(trial, look_at=40) == len(lost), "a sweep did not settle all that was stale")
    for own in lost:
        row = await trial.row(own.digest)
        expect(row is not None and row.state is RecordState.UNKNOWN, f"a stale claim became {row}")


@CHAPTER.check("R27 I1 I3", SETTLES_STALE)
async def a_sweep_and_its_rivals_agree(trial: Trial) -> None:
    """Sweeps, take-overs and late owners at once: each record ends by one of them, and whoever lost is told."""
    keyed = [f"keyed-{n}" for n in range(10)]
    late = [await trial.won(f"opaque-{n}", effects=Effects.OPAQUE) for n in range(10)]
    for key in keyed:
        await trial.won(key)
    trial.clock.advance(LEASE)

    async def sweep() -> int:
        return await _swept(trial, look_at=5)

    async def complete() -> int:
        for own in late:
            await trial.complete(own)
        return 0

    async def take_over() -> int:
        for key in keyed:
            await trial.won(key)
        return 0

    await trial.rival([sweep(), complete(), sweep(), take_over(), sweep()])
    for own in late:
        row = await trial.row(own.digest)
        expect(row is not None and row.state is RecordState.COMPLETED, f"a late owner's answer is gone: {row}")
    for key in keyed:
        await trial.refused(Verdict.IN_PROGRESS, key, when="after a take-over")


async def _swept(trial: Trial, look_at: int = 20_000) -> int:
    """A whole sweep; how many claims it ended."""
    store = cast("AsyncSettlesStale", trial.store)

    async def sweep() -> int:
        settled = 0
        for _ in range(CALLS):
            ended, more = await store.settle_stale(look_at)
            settled += ended
            if not more:
                return settled
        raise CheckFailedError(f"a sweep had not come past all records after {CALLS} calls")

    return await bounded(sweep(), "a sweep")
