"""What comes before what on a route of Starlette, Quart or Litestar: authentication, validation, claim, record."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.shells import board_litestar, board_quart, board_starlette
from tests.shells.board import Make, board, run
from tests.shells.probe import Wire
from twicesafe.core.carriers import JsonMember, QueryParameter

LINES = [(b"x-user", b"ann"), (b"content-type", b"application/json")]


@pytest.fixture(params=[board_starlette, board_quart, board_litestar], ids=["starlette", "quart", "litestar"])
def make(request) -> Make:
    return request.param.make


@pytest.mark.parametrize("path", ["/jobs", "/keyed", "/blocking"])
def test_a_retry_gets_the_first_answer(make, path):
    """R11, R17, R42: one effect, and the retry carries the first answer with the marker, from a thread too."""

    async def trial():
        served = board(make)
        first, again = [await served.post(path) for _ in range(2)]
        assert served.ledger == [1]
        assert (first.status, again.status, again.body) == (201, 201, first.body)
        assert (first.replayed, again.replayed) == (False, True)
        assert again.lines[:-1] == first.lines

    run(trial())


def test_no_key_no_contract_and_another_method_pass(make):
    """R2, R3: without a key, on a route without a contract, and by GET everything runs as often as it is asked for."""

    async def trial():
        served = board(make)
        for _ in range(2):
            assert (await served.post(key=None)).status == 201
            assert (await served.post("/free")).status == 201
            assert (await served.post(method="GET")).body.strip() == b'{"n":%d}' % len(served.ledger)
        assert served.ledger == [1] * 4
        assert len(served.store) == 0

    run(trial())


def test_a_required_key(make):
    """R3, R4, G6: where a key is required, a request without one, or with an empty one, gets 400 and does nothing."""

    async def trial():
        served = board(make, settings={"required": True})
        replies = [await served.post(key=key) for key in (None, b"", b" ", b"\xff")]
        assert (served.ledger, len(served.store)) == ([], 0)
        assert [reply.status for reply in replies] == [400] * 4
        assert [reply.kind for reply in replies] == ["key-missing", *["key-invalid"] * 3]
        assert (await served.post()).status == 201

    run(trial())


def test_rivals_run_once(make):
    """R10, C1: of 20 concurrent attempts one runs; every other gets 409 with Retry-After, and then the answer."""

    async def trial():
        go = asyncio.Event()
        served = board(make, before=go.wait)
        wires = [Wire(served.app, path="/jobs", headers=LINES).start() for _ in range(20)]
        left = {wire.task for wire in wires}
        while len(left) > 1:
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        go.set()
        replies = [await wire.end() for wire in wires]
        assert served.ledger == [1]
        assert sorted(reply.status for reply in replies) == [201] + [409] * 19
        assert all(reply.header(b"retry-after") == b"1" for reply in replies if reply.status == 409)
        assert (await served.post()).replayed

    run(trial())


@pytest.mark.parametrize(
    ("how", "statuses"),
    [
        ({"user": None}, {401}),
        ({"path": "/nowhere"}, {404}),
        ({"method": "PATCH"}, {405}),
        ({"body": b'{"amount": "much"}'}, {400}),
        ({"body": b'{"amount": '}, {400}),
        ({"body": b'{"amount": 1, "padding": "' + b"x" * 2000 + b'"}'}, {413}),
    ],
)
def test_a_request_that_is_refused_before_the_work_leaves_the_key_free(make, how, statuses):
    """E1, E2, R15: after 400, 401, 404, 405 or 413 nothing is stored, and the correct call runs under the same key."""

    async def trial():
        served = board(make, settings={"body_limit": 1000})
        refused = await served.post(**how)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert refused.status in statuses
        right = await served.post()
        assert served.ledger == [1]
        assert (right.status, right.replayed) == (201, False)

    run(trial())


def test_authentication_comes_before_the_claim_and_before_the_replay(make):
    """R22, E1: a stranger claims nothing, and a caller whose account is closed is not shown what was answered."""

    async def trial():
        served = board(make)
        assert (await served.post(user=None)).status == 401
        assert len(served.store) == 0
        assert (await served.post()).status == 201
        served.revoked.add("ann")
        revoked = await served.post()
        assert (revoked.status, revoked.replayed) == (401, False)
        served.revoked.clear()
        assert (await served.post()).replayed
        assert served.ledger == [1]
        assert served.authenticated == 4

    run(trial())


def test_callers_do_not_share_keys(make):
    """I7, G1, F5: another caller under the same key runs its own; the same one with a new token is replayed."""

    async def trial():
        served = board(make)
        ann, bob = await served.post(user="ann"), await served.post(user="bob")
        assert served.ledger == [1, 1]
        assert (bob.status, bob.replayed) == (201, False)
        again = await served.post(
            user="ann", headers=[(b"authorization", b"Bearer new"), (b"traceparent", b"00-1-1-01")]
        )
        assert (again.replayed, again.body) == (True, ann.body)

    run(trial())


@pytest.mark.parametrize(
    "other",
    [
        {"body": b'{"amount": 2}'},
        {"query": b"dry=1"},
        {"path": "/keyed"},
        {"headers": [(b"content-type", b"application/json; charset=utf-8")]},
    ],
)
def test_a_key_names_one_request(make, other):
    """I4, R7, F3, F6, G2: another body, query, path or media type under a used key gets 422, now and when retried."""

    async def trial():
        served = board(make)
        first = await served.post()
        for _ in range(2):
            refused = await served.post(**other)
            assert (refused.status, refused.kind) == (422, "key-reused")
        assert served.ledger == [1]
        assert (await served.post()).body == first.body

    run(trial())


@pytest.mark.parametrize("gone", ["hangs up", "is cancelled"])
def test_a_client_that_leaves_changes_nothing(make, gone):
    """A1, R14: the client hangs up, or the server cancels its task, while the work goes on; it is finished and kept."""

    async def trial():
        waiting, go = asyncio.Event(), asyncio.Event()

        async def before():
            waiting.set()
            await go.wait()

        served = board(make, before=before)
        wire = Wire(served.app, headers=LINES).start()
        await waiting.wait()
        if gone == "hangs up":
            wire.hang_up()
        else:
            wire.task.cancel()
            assert isinstance((await wire.end()).raised, asyncio.CancelledError)
        busy = await served.post()
        assert (busy.status, busy.kind) == (409, "in-progress")
        go.set()
        await served.settled()
        await wire.end()
        again = await served.post()
        assert served.ledger == [1]
        assert (again.status, again.replayed) == (201, True)

    run(trial())


@pytest.mark.parametrize("path", ["/jobs", "/stream"])
def test_half_an_upload_claims_nothing(make, path):
    """R9, H1, K: the client vanishes in the middle of its body, whoever reads it; nothing is claimed or done."""

    async def trial():
        served = board(make)
        await served.post(path, parts=[b'{"amou', b'nt": '], cut=True, raises=Exception)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert not served.safe._shared.running
        assert (await served.post(path)).status == 201

    run(trial())


def test_a_body_in_many_parts_arrives_whole(make):
    """H1: what comes in pieces is one body for the work and for the fingerprint."""

    async def trial():
        served = board(make)
        first = await served.post(parts=[b'{"am', b"", b'ount"', b": 1", b"}", b""])
        again = await served.post(body=b'{"amount": 1}')
        assert served.ledger == [1]
        assert (first.status, again.replayed, again.body) == (201, True, first.body)

    run(trial())


def test_a_duplicate_may_wait(make):
    """R11: by choice a duplicate waits for the first attempt and gets its answer."""

    async def trial():
        waiting, go = asyncio.Event(), asyncio.Event()

        async def before():
            waiting.set()
            await go.wait()

        served = board(make, before=before, settings={"wait": timedelta(seconds=20)})
        wires = [Wire(served.app, headers=LINES).start()]
        await waiting.wait()
        wires.append(Wire(served.app, headers=LINES).start())
        go.set()
        first, second = [await wire.end() for wire in wires]
        assert served.ledger == [1]
        assert (second.status, second.replayed, second.body) == (201, True, first.body)

    run(trial())


def test_a_key_may_stand_elsewhere(make):
    """R5, R1: a key in a member of the body, or in the query, is the request's key as one in a header is."""

    async def trial():
        served = board(make, settings={"fields": (JsonMember("token"), QueryParameter("key")), "required": True})
        body = b'{"amount": 1, "token": "k-0001-0001-0001"}'
        first, again = [await served.post(key=None, body=body) for _ in range(2)]
        assert served.ledger == [1]
        assert (first.status, again.replayed, again.body) == (201, True, first.body)
        other, retried = [await served.post(key=None, query=b"key=k-0002-0002-0002") for _ in range(2)]
        assert served.ledger == [1, 1]
        assert (other.status, retried.replayed) == (201, True)
        missing = await served.post(key=None)
        assert (missing.status, missing.kind) == (400, "key-missing")

    run(trial())
