"""What becomes of a request that is torn away, fails, or is answered by somebody else."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.shells.probe import Probe, Wire, post
from tests.shells.rig import Failing, Rig
from twicesafe.asgi import current
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects
from twicesafe.errors import AmbiguousWriteError, StoreUnavailableError
from twicesafe.stores.memory import AsyncMemoryStore

LEASE = timedelta(seconds=30)


def run(coroutine):
    return asyncio.run(coroutine)


async def settled(rig: Rig) -> None:
    """Wait for work whose client is gone."""
    while rig.safe._shared.running:
        await asyncio.wait(set(rig.safe._shared.running))


# --- A: the result is lost after the work is done ---------------------------------------------------------------------


def test_a_client_that_hangs_up_changes_nothing():
    """A1a, R14: the client leaves while the handler works; the work is finished and recorded, the retry replays it."""

    async def trial():
        working, go = asyncio.Event(), asyncio.Event()

        async def after():
            working.set()
            await go.wait()

        rig = Rig(probe=Probe(after=after))
        wire = Wire(rig.safe).start()
        await working.wait()
        wire.hang_up()
        go.set()
        await wire.end()
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (201, True)

    run(trial())


@pytest.mark.parametrize("effects", [Effects.OPAQUE, Effects.KEYED])
def test_cancelling_the_request_at_every_await_never_doubles_its_effect(effects):
    """A1c, R14: cancelled at its n-th turn for every n; effects never exceed 1, a retry makes it 1."""

    async def one(turns: int) -> bool:
        async def pause():
            await asyncio.sleep(0)

        noise: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
        rig = Rig(Policy(effects=effects), Probe(before=pause, after=pause))
        failing = Failing(rig.store)
        for method in ("claim", "complete"):
            failing.before[method] = pause
        rig.safe._shared.store = failing
        wire = Wire(rig.safe).start()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert wire.task is not None
        over = wire.task.done()
        wire.task.cancel()
        await wire.end()
        await settled(rig)
        again = await post(rig.safe)
        assert rig.effects == 1, turns
        assert again.status == 201, turns
        assert not noise, noise
        return over

    async def trial():
        turns = 0
        while not await one(turns):
            turns += 1
            assert turns < 100
        assert turns > 4

    run(trial())


def test_a_hang_up_while_the_answer_is_being_recorded_changes_nothing():
    """A1b, I11: the client leaves while a slow store records; nothing was sent before it was recorded."""

    async def trial():
        recording, go = asyncio.Event(), asyncio.Event()

        async def slow():
            recording.set()
            await go.wait()

        rig = Rig()
        failing = Failing(rig.store)
        failing.before["complete"] = slow
        rig.safe._shared.store = failing
        wire = Wire(rig.safe).start()
        await recording.wait()
        assert wire.reply.messages == []
        wire.hang_up()
        wire.task.cancel()
        await wire.end()
        go.set()
        await settled(rig)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (201, True)

    run(trial())


def test_a_duplicate_that_comes_while_the_first_runs_is_told_to_wait():
    """A7, R11, R21: the retry is refused with 409 and an honest Retry-After; afterwards it replays."""

    async def trial():
        working, go = asyncio.Event(), asyncio.Event()

        async def after():
            working.set()
            await go.wait()

        rig = Rig(probe=Probe(after=after))
        wire = Wire(rig.safe).start()
        await working.wait()
        early = await post(rig.safe)
        assert rig.effects == 1
        assert (early.status, early.kind) == (409, "in-progress")
        assert early.problem["retryable"] is True and early.problem["safe_new_key"] is False
        assert early.header(b"retry-after") == b"1"
        go.set()
        first = await wire.end()
        late = await post(rig.safe)
        assert rig.effects == 1
        assert first.status == 201
        assert (late.status, late.replayed) == (201, True)

    run(trial())


def test_a_duplicate_may_wait_for_the_first_instead():
    """R11: with `wait`, a duplicate rereads until the first is done and then replays."""

    async def trial():
        working, go = asyncio.Event(), asyncio.Event()

        async def after():
            working.set()
            await go.wait()

        rig = Rig(Policy(wait=timedelta(seconds=20)), Probe(after=after))
        first = Wire(rig.safe).start()
        await working.wait()
        second = Wire(rig.safe).start()
        await asyncio.sleep(0)
        go.set()
        replies = [await first.end(), await second.end()]
        assert rig.effects == 1
        assert [reply.status for reply in replies] == [201, 201]
        assert [reply.replayed for reply in replies] == [False, True]

    run(trial())


def test_fifty_at_once_run_once_and_nobody_gets_a_server_error():
    """C1, R10: 50 concurrent identical requests: one effect, everybody else a replay or 409, no 5xx."""

    async def trial():
        go = asyncio.Event()
        rig = Rig(probe=Probe(after=go.wait))
        wires = [Wire(rig.safe).start() for _ in range(50)]
        for _ in range(5):
            await asyncio.sleep(0)
        go.set()
        replies = [await wire.end() for wire in wires]
        assert rig.effects == 1
        assert sorted({reply.status for reply in replies}) == [201, 409]
        assert sum(reply.status == 201 for reply in replies) == 1

    run(trial())


# --- the store fails --------------------------------------------------------------------------------------------------


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


# --- B: leases, take-over, late owners --------------------------------------------------------------------------------


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
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (201, False)

    run(trial())


# --- E: what is stored ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 425, 429, 503])
def test_answers_that_mean_nothing_was_done_leave_the_key_free(status):
    """E3, R15: 429, 503, 408 and 425 are not stored: the retry runs."""

    async def trial():
        rig = Rig()
        calls = []

        async def app(scope, receive, send):
            calls.append(1)
            if len(calls) == 1:
                await send({"type": "http.response.start", "status": status, "headers": [(b"retry-after", b"1")]})
                await send({"type": "http.response.body", "body": b"busy"})
            else:
                await rig.probe(scope, receive, send)

        rig.safe.app = app
        first = await post(rig.safe)
        second = await post(rig.safe)
        assert rig.effects == 1
        assert first.status == status and first.body == b"busy"
        assert (second.status, second.replayed) == (201, False)

    run(trial())


@pytest.mark.parametrize("status", [401, 405, 413, 415])
def test_refusals_of_the_request_itself_leave_no_record(status):
    """E1, R15: 401, 405, 413 and 415 claim nothing for good; the correct call with the key runs."""

    async def trial():
        rig = Rig()

        async def refuse(scope, receive, send):
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        rig.safe.app = refuse
        assert (await post(rig.safe)).status == status
        rig.safe.app = rig.probe
        right = await post(rig.safe, body=b"corrected")
        assert rig.effects == 1
        assert (right.status, right.replayed) == (201, False)

    run(trial())


def test_a_refusal_by_the_handler_is_stored_and_says_what_to_do():
    """E2, R15, R21: a stored 402 replays; a corrected body under its key gets 422 with the advice in it."""

    async def trial():
        rig = Rig(probe=Probe(status=402, body=b'{"error": "insufficient funds"}'))
        first = await post(rig.safe)
        same = await post(rig.safe)
        corrected = await post(rig.safe, body=b'{"amount": 2}')
        assert rig.effects == 1
        assert (first.status, same.status, same.replayed) == (402, 402, True)
        assert (corrected.status, corrected.kind) == (422, "key-reused")
        assert corrected.problem["retryable"] is False

    run(trial())


def test_a_handler_may_declare_that_it_did_nothing():
    """R15: `nothing_done()` leaves the key free whatever the status; a policy's `repeatable` does it for a status."""

    async def trial():
        for declared in (True, False):
            policy = Policy() if declared else Policy(repeatable=frozenset({402}))
            rig = Rig(policy)

            async def app(scope, receive, send, declared=declared):
                if declared:
                    current(scope).nothing_done()
                await send({"type": "http.response.start", "status": 402, "headers": []})
                await send({"type": "http.response.body", "body": b""})

            rig.safe.app = app
            assert (await post(rig.safe)).status == 402
            rig.safe.app = rig.probe
            assert (await post(rig.safe, body=b"other")).status == 201
            assert rig.effects == 1

    run(trial())


@pytest.mark.parametrize("after", [False, True])
def test_an_exception_of_opaque_work_becomes_the_answer_to_every_retry(after):
    """E4, R16: the 500 is stored and sent by twicesafe, the exception still reaches the server, nothing runs again."""

    async def trial():
        error = RuntimeError("boom with a secret")
        rig = Rig(probe=Probe(raise_after=error) if after else Probe(raise_before=error))
        first = await post(rig.safe, raises=RuntimeError)
        again = await post(rig.safe)
        assert rig.effects == int(after)
        assert rig.probe.entered == 1
        assert first.raised is error
        assert (first.status, first.kind) == (500, "handler-failed")
        assert b"secret" not in first.body
        assert (again.status, again.body, again.replayed) == (500, first.body, True)

    run(trial())


def test_an_exception_may_mean_unknown_instead():
    """R16: with `unknown_on_error` an exception of opaque work is an unknown outcome, for somebody to settle."""

    async def trial():
        rig = Rig(Policy(unknown_on_error=True), Probe(raise_after=RuntimeError("boom")))
        await post(rig.safe, raises=RuntimeError)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.kind) == (409, "outcome-unknown")

    run(trial())


def test_a_failing_background_task_changes_nothing():
    """K, R17: the answer is recorded when it is complete; what fails after it is not run again on a retry."""

    async def trial():
        ran = []

        async def background():
            ran.append(1)
            raise RuntimeError("background")

        rig = Rig(probe=Probe(background=background))
        first = await post(rig.safe, raises=RuntimeError)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert ran == [1]
        assert isinstance(first.raised, RuntimeError)
        assert (first.status, again.status, again.replayed) == (201, 201, True)

    run(trial())


def test_a_send_that_fails_changes_nothing():
    """K, R14: the socket breaks while the answer is sent; it was recorded before, the retry replays it."""

    async def trial():
        def broken(message):
            raise OSError("broken pipe")

        rig = Rig()
        await post(rig.safe, on_send=broken)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (201, True)

    run(trial())


def test_the_record_is_durable_before_the_first_byte_leaves():
    """I11: at the moment the first byte of the answer reaches the server, the store already has it."""

    async def trial():
        rig = Rig()
        recorded = []
        failing = Failing(rig.store)

        async def note():
            recorded.append("asked")

        failing.before["complete"] = note
        rig.safe._shared.store = failing
        await post(rig.safe, on_send=lambda message: recorded.append(message["type"]))
        assert rig.effects == 1
        assert recorded == ["asked", "http.response.start", "http.response.body"]

    run(trial())


def test_work_whose_client_is_gone_is_waited_for_on_shutdown():
    """R14: on lifespan.shutdown the shell drains what still runs before the application is told."""

    async def trial():
        inside, go = asyncio.Event(), asyncio.Event()

        async def slow():
            inside.set()
            await go.wait()

        rig = Rig(probe=Probe(after=slow))
        wire = Wire(rig.safe).start()
        await inside.wait()
        wire.task.cancel()
        await wire.end()
        told: list[str] = []

        async def app(scope, receive, send):
            told.append((await receive())["type"])
            assert rig.effects == 1
            assert not rig.safe._shared.running

        async def receive():
            return {"type": "lifespan.shutdown"}

        rig.safe.app = app
        shutdown = asyncio.ensure_future(rig.safe({"type": "lifespan"}, receive, None))
        await asyncio.sleep(0)
        assert told == []
        go.set()
        await shutdown
        assert told == ["lifespan.shutdown"]

    run(trial())
