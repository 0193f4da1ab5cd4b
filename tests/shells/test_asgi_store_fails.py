"""The store fails before, in and after the work; leases end, and late owners come back."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.shells.probe import Probe, Wire, post
from tests.shells.rig import Failing, Rig, settled
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects
from twicesafe.errors import AmbiguousWriteError, StoreUnavailableError
from twicesafe.stores.memory import AsyncMemoryStore

LEASE = timedelta(seconds=30)


def run(coroutine):
    return asyncio.run(coroutine)


def test_a_claim_whose_answer_was_lost_recognises_its_own_row():
    """B6: the claim is applied and its answer lost; asked again it is won, the handler runs once, no 409 loop."""

    async def trial():
        rig = Rig()
        failing = Failing(rig.store)
        failing.fail("claim", AmbiguousWriteError("cut"), lost_reply=True)
        rig.safe._shared.store = failing
        first = await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (first.status, again.status, again.replayed) == (201, 201, True)

    run(trial())


def test_nothing_runs_where_nothing_can_be_remembered():
    """R10: the store is down: 503, retryable with the same key, and no effect."""

    async def trial():
        rig = Rig()
        failing = Failing(rig.store)
        failing.fail("claim", StoreUnavailableError("down"))
        rig.safe._shared.store = failing
        refused = await post(rig.safe)
        assert rig.effects == 0
        assert (refused.status, refused.kind, refused.header(b"retry-after")) == (503, "store-unavailable", b"1")
        assert refused.problem["retryable"] is True
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (201, False)

    run(trial())


@pytest.mark.parametrize("lost_reply", [False, True])
def test_a_recording_that_fails_once_is_tried_again(lost_reply):
    """R14: recording fails, before or after it was applied; it is repeated under the same owner, nothing runs twice."""

    async def trial():
        rig = Rig()
        failing = Failing(rig.store)
        failing.fail("complete", AmbiguousWriteError("cut"), lost_reply=lost_reply)
        rig.safe._shared.store = failing
        first = await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (first.status, again.status, again.replayed) == (201, 201, True)

    run(trial())


def test_a_recording_that_never_succeeds_is_held_as_unknown_and_counted_loudly():
    """R14, I6, R44: the first caller gets the true answer, retries "unknown", effects stay 1."""

    async def trial():
        rig = Rig()
        failing = Failing(rig.store)
        failing.fail("complete", StoreUnavailableError("down"), times=10)
        rig.safe._shared.store = failing
        first = await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert first.status == 201
        assert (again.status, again.kind) == (409, "outcome-unknown")
        assert any(event.name == "recording.failed" and event.loud for event in rig.events)

    run(trial())


def test_a_late_owner_changes_nothing():
    """B4, I3: a keyed operation is taken over; the slow first owner's end neither records nor releases anything."""

    async def trial():
        gates = [asyncio.Event(), asyncio.Event()]
        inside = [asyncio.Event(), asyncio.Event()]
        turn = iter((0, 1))

        async def before():
            number = next(turn)
            inside[number].set()
            await gates[number].wait()

        rig = Rig(Policy(effects=Effects.KEYED, lease=timedelta(seconds=1)), Probe(before=before))
        a = Wire(rig.safe).start()
        await inside[0].wait()
        rig.pass_time(timedelta(seconds=1))
        b = Wire(rig.safe).start()
        await inside[1].wait()
        gates[0].set()
        late = await a.end()
        refused = await post(rig.safe)
        assert refused.status == 409, "while b runs nobody else may"
        gates[1].set()
        second = await b.end()
        again = await post(rig.safe)
        assert rig.probe.entered == 2
        assert (late.status, late.kind) == (409, "in-progress")
        assert second.status == 201
        assert (again.body, again.replayed) == (second.body, True)
        assert "lease.lost" in rig.told

    run(trial())


def test_a_crash_of_an_opaque_operation_is_held_as_unknown_within_the_lease():
    """B5, R13, I6: the owner dies; duplicates wait out the lease, then it is unknown, never run again."""

    async def trial():
        inside = asyncio.Event()

        async def die():
            inside.set()
            await asyncio.Event().wait()

        rig = Rig(Policy(lease=LEASE), Probe(after=die))
        wire = Wire(rig.safe).start()
        await inside.wait()
        early = await post(rig.safe)
        rig.pass_time(LEASE)
        late = await post(rig.safe)
        assert rig.effects == 1
        assert (early.status, early.kind) == (409, "in-progress")
        assert (late.status, late.kind) == (409, "outcome-unknown")
        wire.task.cancel()
        await wire.end()
        for task in list(rig.safe._shared.running):
            task.cancel()
        await settled(rig)

    run(trial())


def test_an_owner_that_was_given_up_may_still_bring_the_answer():
    """I6: an opaque run outlives its lease, is held as unknown, then finishes: its own answer settles the outcome."""

    async def trial():
        inside, go = asyncio.Event(), asyncio.Event()

        async def slow():
            inside.set()
            await go.wait()

        rig = Rig(Policy(lease=LEASE), Probe(after=slow))
        wire = Wire(rig.safe).start()
        await inside.wait()
        rig.pass_time(LEASE)
        assert (await post(rig.safe)).kind == "outcome-unknown"
        go.set()
        first = await wire.end()
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (first.status, again.status, again.replayed) == (201, 201, True)

    run(trial())


def test_a_lease_is_renewed_while_its_work_runs():
    """R12: renewals keep a long run's claim alive on the store's clock; when it ends they end."""

    async def trial():
        inside, go = asyncio.Event(), asyncio.Event()

        async def slow():
            inside.set()
            await go.wait()

        store = AsyncMemoryStore()
        renewed = asyncio.Event()

        rig = Rig(Policy(lease=timedelta(milliseconds=100)), Probe(after=slow), store=store)
        failing = Failing(store)

        async def note():
            renewed.set()

        failing.before["renew"] = note
        rig.safe._shared.store = rig.safe._shared.renewals._store = failing
        wire = Wire(rig.safe).start()
        await inside.wait()
        await asyncio.wait_for(renewed.wait(), 10)
        go.set()
        assert (await wire.end()).status == 201
        assert rig.effects == 1
        assert not rig.safe._shared.renewals._live

    run(trial())


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt(), SystemExit(), asyncio.CancelledError()])
def test_whatever_ends_a_handler_leaves_no_key_in_progress(error):
    """B7: exceptions of every kind, an outer catch-all included, end the claim; keyed work runs again."""

    async def trial():
        probe = Probe(raise_before=error)
        rig = Rig(Policy(effects=Effects.KEYED), probe)

        async def catch_all(scope, receive, send):
            try:
                await rig.safe(scope, receive, send)
            except BaseException:
                await send({"type": "http.response.start", "status": 500, "headers": []})
                await send({"type": "http.response.body", "body": b"sorry"})

        # In this very task: asyncio lets KeyboardInterrupt out through the loop itself.
        wire = Wire(catch_all)
        await wire._run()
        assert wire.reply.status == 500
        probe.raise_before = None
        rig.pass_time(timedelta(microseconds=1))
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (201, False)

    run(trial())
