"""Becoming the one who runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

from twicesafe.core.capture import Responded
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.exchange import exchange
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects, Ownership, RecordState
from twicesafe.core.steps import Forward, Run
from twicesafe.errors import AmbiguousWriteError
from twicesafe.testing.check import ELSEWHERE, STATEMENTS, Checks
from twicesafe.testing.trial import (
    A_WHILE,
    ANSWER,
    BODY,
    KEY,
    LEASE,
    OTHER_REQUEST,
    Trial,
    expect,
    us,
)

CHAPTER = Checks()


@CHAPTER.check("I1 I2 C1")
async def one_of_many_wins(trial: Trial) -> None:
    """Of many rivals on each of many keys exactly one wins, the row carries its token, and every other is told."""
    keys = [f"key-{n}" for n in range(trial.keys)]

    async def rival() -> dict[str, Claimed | Existing]:
        return {key: await trial.claim(key) for key in keys}

    answers = await trial.rival(rival() for _ in range(trial.rivals))
    for key in keys:
        found = [answer[key] for answer in answers]
        winners = [one for one in found if isinstance(one, Claimed)]
        expect(len(winners) == 1, f"{len(winners)} of {trial.rivals} rivals won {key}")
        row = await trial.row(winners[0].ownership.digest)
        expect(row is not None, f"no row stands for {key}, which was won")
        assert row is not None
        expect(row.ownership == winners[0].ownership, f"the row of {key} carries another token than its winner's")
        told = {one.verdict for one in found if isinstance(one, Existing)}
        expect(told <= {Verdict.IN_PROGRESS}, f"losers on {key} were told {', '.join(sorted(told))}")


@CHAPTER.check("I1 R12 R22")
async def a_claim_is_kept_as_asked(trial: Trial) -> None:
    """The row read back is what the claim said, to the microsecond on the store's own clock."""
    wish = trial.wish(effects=Effects.OPAQUE)._replace(request=bytes(range(256)))
    found = await trial.store.claim(wish)
    assert isinstance(found, Claimed)
    now = trial.clock()
    expect(found.now == now and await trial.store.now() == now, "the store does not go by the clock it was given")
    expect(found.previous is None, "a first claim found a previous one")
    expect(found.ownership.epoch == 1, f"the first epoch is {found.ownership.epoch}")
    row = await trial.row(wish.digest)
    assert row is not None
    for name in ("digest", "scope", "operation", "key_hint", "effects", "owner", "request"):
        expect(getattr(row, name) == getattr(wish, name), f"{name} was kept as {getattr(row, name)!r}")
    expect(row.fingerprint == wish.fingerprint.value, "the fingerprint was kept otherwise")
    expect(type(row.owner) is bytes and type(row.fingerprint) is bytes, "bytes came back as something else")
    expect(row.state is RecordState.CLAIMED and row.response is None, f"a claimed row is {row.state}")
    expect(row.created_at == now, "created_at is not the store's now")
    expect(row.lease_until == now + us(LEASE), "the lease does not end when it should")
    expect(row.key_until == now + us(KEY), "the key's retention does not end when it should")


@CHAPTER.check("G1 R6")
async def any_name_can_be_kept(trial: Trial) -> None:
    """Scopes and operations are kept whatever characters they hold, zero bytes and lone surrogates apart from none."""
    for n, name in enumerate(("", "Ünï ☃ 𝄞", "quote ' \" \\ %s :x $1 ?", "x" * 255, "line\nbreak\ttab")):
        wish = trial.wish(f"key-{n}")._replace(scope=name, operation=name[:200] or "-")
        await trial.store.claim(wish)
        row = await trial.row(wish.digest)
        assert row is not None
        expect(row.scope == name and row.operation == wish.operation, f"{name!r} was kept as {row.scope!r}")


@CHAPTER.check("B6 I1")
async def own_claim_is_recognised(trial: Trial) -> None:
    """A claim asked again with its token, because the answer was lost, is won again; nobody else gets in."""
    wish = trial.wish()
    first = await trial.store.claim(wish)
    again = await trial.store.claim(wish)
    assert isinstance(first, Claimed)
    expect(isinstance(again, Claimed), f"its own row was taken for a rival's: {again}")
    assert isinstance(again, Claimed)
    expect(again.ownership == first.ownership, "asked again, the claim has another epoch")
    await trial.refused(Verdict.IN_PROGRESS, when="after a claim was asked twice")
    await trial.complete(again.ownership)
    await trial.refused(Verdict.REPLAY, when="after its completion")


@CHAPTER.check("B6 I1")
async def own_take_over_is_recognised(trial: Trial) -> None:
    """The same for a claim that took over a stale one or an expired one."""
    await trial.completed("expired")
    trial.clock.advance(KEY - LEASE)
    await trial.won("stale", effects=Effects.KEYED)
    trial.clock.advance(LEASE)
    for key in ("stale", "expired"):
        wish = trial.wish(key)
        first, again = await trial.store.claim(wish), await trial.store.claim(wish)
        expect(isinstance(first, Claimed) and isinstance(again, Claimed), f"a {key} row was not claimed: {again}")
        assert isinstance(first, Claimed) and isinstance(again, Claimed)
        expect(first.ownership == again.ownership, f"asked again over a {key} row, the claim has another epoch")
        await trial.refused(Verdict.IN_PROGRESS, key, when="after a take-over was asked twice")


@CHAPTER.check("B6 I2")
async def a_lost_reply_runs_once(trial: Trial) -> None:
    """A claim that was applied and then raised is asked again by the exchange: one run, and a retry replays it."""
    effects = 0

    async def attempt(claim: Claim, *, lose_first: bool) -> object:
        nonlocal effects
        steps = exchange(claim, Policy(effects=claim.effects))
        lost = not lose_first
        step: Any = next(steps)
        try:
            while True:
                if isinstance(step, Claim):
                    found = await trial.store.claim(step)
                    if lost:
                        step = steps.send(found)
                    else:
                        lost = True
                        step = steps.throw(AmbiguousWriteError("the reply was lost"))
                elif isinstance(step, Run):
                    effects += 1
                    step = steps.send(Responded(201, ANSWER.headers, ANSWER.body))
                elif hasattr(step, "response"):
                    await trial.store.complete(step.ownership, step.response, step.key_us, step.body_us)
                    step = steps.send(None)
                else:
                    step = steps.send(None)
        except StopIteration as end:
            return cast("object", end.value)

    first = await attempt(trial.wish(), lose_first=True)
    expect(effects == 1, f"the handler ran {effects} times")
    expect(isinstance(first, Forward), f"the first caller was answered {first}")
    retry: Any = await attempt(trial.wish(), lose_first=False)
    expect(effects == 1, "the retry ran the handler again")
    expect(getattr(retry, "kind", None) == "replayed" and retry.body == ANSWER.body, f"the retry was answered {retry}")


@CHAPTER.check("B1 R12")
async def no_lease_is_absent(trial: Trial) -> None:
    """A lease or retention of None, 0 or less is refused and leaves no row; one of a millisecond lasts that long."""
    for wrong in (None, 0, -1):
        for name in ("lease_us", "key_us"):
            wish = trial.wish()._replace(**cast("dict[str, Any]", {name: wrong}))
            try:
                await trial.store.claim(wish)
            except (ValueError, TypeError):
                expect(await trial.row(wish.digest) is None, f"a claim with {name} {wrong} was refused but left a row")
            else:
                expect(False, f"a claim with {name} {wrong} was taken")
    own = await trial.won(lease=timedelta(milliseconds=1))
    trial.clock.advance(timedelta(microseconds=999))
    await trial.refused(Verdict.IN_PROGRESS, when="within a lease of a millisecond")
    trial.clock.advance(timedelta(microseconds=1))
    taken = await trial.won()
    expect(taken.epoch == own.epoch + 1, "a take-over did not grow the epoch")
    for wrong in (None, 0, -1):
        try:
            await trial.store.renew(taken, cast("int", wrong))
        except (ValueError, TypeError):
            pass
        else:
            expect(False, f"a renewal of {wrong} was taken")
    await trial.refused(Verdict.IN_PROGRESS, when="after refused renewals")


@CHAPTER.check("I7 G1")
async def scopes_stay_apart(trial: Trial) -> None:
    """One key under two scopes names two records, in every state."""
    ways: tuple[Callable[..., Awaitable[Ownership]], ...] = (trial.won, trial.completed, trial.unknown)
    for n, prepare in enumerate(ways):
        own = await prepare(f"key-{n}", scope="alice")
        other = await trial.claim(f"key-{n}", scope="bob")
        expect(isinstance(other, Claimed), f"bob was answered {other} about alice's key")
        assert isinstance(other, Claimed)
        expect(other.previous is None, "bob was shown alice's record")
        row = await trial.row(own.digest)
        expect(
            row is not None and row.scope == "alice" and row.owner == own.owner, "bob's claim changed alice's record"
        )


@CHAPTER.check("I4 F6 F8")
async def another_request_is_refused_everywhere(trial: Trial) -> None:
    """The key with another request is a mismatch in every state, stale and tombstone included, and touches nothing."""
    held: dict[str, Ownership] = {
        "live": await trial.won("live"),
        "completed": await trial.completed("completed"),
        "unknown": await trial.unknown("unknown"),
    }
    for key, own in held.items():
        await _mismatch(trial, key, own.digest)
    for key, effects in (("stale", Effects.KEYED), ("stale-opaque", Effects.OPAQUE)):
        held[key] = await trial.won(key, effects=effects)
    held["answered"] = await trial.won("answered", effects=Effects.OPAQUE)
    await trial.store.start_answer(held["answered"], ANSWER._replace(body=None))
    trial.clock.advance(LEASE)
    for key in ("live", "stale", "stale-opaque", "answered"):
        await _mismatch(trial, key, held[key].digest)
    trial.clock.advance(BODY)
    await _mismatch(trial, "completed", held["completed"].digest)
    await trial.refused(Verdict.GONE, "completed", when="after mismatches on a tombstone")
    await trial.refused(Verdict.UNKNOWN, "unknown", when="after mismatches on an unknown outcome")
    await trial.refused(Verdict.GONE, "answered", when="after mismatches on an answer that had begun to leave")
    await trial.complete(held["live"])
    await trial.refused(Verdict.REPLAY, "live", when="after its owner completed between mismatches")


async def _mismatch(trial: Trial, key: str, digest: bytes) -> None:
    before = await trial.row(digest)
    for effects in Effects:
        await trial.refused(
            Verdict.MISMATCH, key, request=OTHER_REQUEST, effects=effects, when=f"with another request on a {key} key"
        )
    expect(trial.same(before, await trial.row(digest)), f"a mismatch changed the {key} row")


@CHAPTER.check("I1 R12")
async def epochs_grow(trial: Trial) -> None:
    """Each take-over grows the epoch by one and is told of the claim before it."""
    own = await trial.won(effects=Effects.KEYED)
    for epoch in range(2, 5):
        trial.clock.advance(LEASE)
        found = await trial.claim()
        assert isinstance(found, Claimed)
        expect(found.ownership.epoch == epoch, f"after {epoch - 1} claims the epoch is {found.ownership.epoch}")
        expect(found.previous is not None, "a take-over was not told of the claim before it")
        assert found.previous is not None
        expect(found.previous.ownership == own, "the previous record is not the one that was taken over")
        own = found.ownership


@CHAPTER.check("C6", STATEMENTS)
async def a_vanishing_row_is_claimed_anew(trial: Trial) -> None:
    """A row that is deleted between the conflict and the read starts the claim again: one of two rivals runs."""
    happened = 0
    for before in range(5):
        key = f"key-{before}"
        own = await trial.won(key)
        vanished = asyncio.Event()

        async def vanish(n: int, at: int = before, what: Any = own, done: asyncio.Event = vanished) -> None:
            if n == at and not done.is_set():
                done.set()
                await trial.store.release(what)

        await trial.before_statement(vanish)
        found = await trial.rival(trial.claim(key) for _ in range(2))
        await trial.before_statement(lambda _: None)
        winners = [one for one in found if isinstance(one, Claimed)]
        if not vanished.is_set():
            expect(not winners, "a rival won although the row stood")
            continue
        happened += 1
        expect(len(winners) == 1, f"{len(winners)} of 2 rivals won a row that vanished before statement {before}")
        row = await trial.row(own.digest)
        expect(row is not None and row.owner == winners[0].ownership.owner, "nothing in the row protects the winner")
        await trial.nothing_moves(own, "the owner of the vanished row")
    expect(happened > 1, "before_statement called too seldom for a row to vanish between two statements")


@CHAPTER.check("I1 I12", ELSEWHERE)
async def one_truth_for_all_sessions(trial: Trial) -> None:
    """Another process, whatever its session's time zone, sees the same leases, expiries and answers."""
    other = trial.elsewhere()
    own = await trial.won()
    trial.clock.advance(LEASE - A_WHILE)
    found = await trial.refused(Verdict.IN_PROGRESS, by=other, when="within the lease, from elsewhere")
    assert found.record is not None
    expect(found.record.lease_until - found.now == us(A_WHILE), "from elsewhere the lease seems to end at another time")
    trial.clock.advance(A_WHILE)
    taken = await trial.won(by=other)
    expect(taken.epoch == 2, "a take-over from elsewhere did not grow the epoch")
    await trial.nothing_moves(own, "the owner that was taken over from elsewhere")
    await other.renew(taken, us(LEASE))
    await trial.complete(taken, by=other)
    there = (await other.read(own.digest)).record
    expect(there == await trial.row(own.digest), "the two read the row differently")
    trial.clock.advance(KEY - A_WHILE)
    await trial.refused(Verdict.GONE, when="just before the retention ends")
    trial.clock.advance(A_WHILE)
    await trial.won()
