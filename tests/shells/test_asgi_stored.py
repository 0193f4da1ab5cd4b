"""Which answers are stored, which leave the key free, and what an exception becomes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.shells.probe import Probe, post
from tests.shells.rig import Rig
from twicesafe.asgi import current
from twicesafe.core.policy import Policy

LEASE = timedelta(seconds=30)


def run(coroutine):
    return asyncio.run(coroutine)


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
