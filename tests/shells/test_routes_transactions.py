"""Effect and answer in one transaction on a route of Starlette, Quart or Litestar: stored is what was committed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from tests.shells import board_litestar, board_quart, board_starlette
from tests.shells.board import Board, Make, board, run
from tests.shells.probe import Wire
from tests.shells.service import K
from twicesafe.core.carriers import QueryParameter
from twicesafe.core.record import RecordState

ANN = [(b"x-user", b"ann"), (b"content-type", b"application/json")]


@pytest.fixture(params=[board_starlette, board_quart, board_litestar], ids=["starlette", "quart", "litestar"])
def make(request) -> Make:
    return request.param.make


@asynccontextmanager
async def bank(make, folder, **how):
    """A board on a SQLite file, with its tables."""
    served: Board = board(make, folder, **how)
    await served.store.apply_schema()
    try:
        yield served
    finally:
        await served.store.aclose()


def test_effect_and_answer_commit_together(make, tmp_path):
    """R23, I11: the row is there when the first byte leaves, once, and the retry is a replay."""

    async def trial():
        async with bank(make, tmp_path) as served:
            seen = []
            wire = Wire(served.app, path="/tx", headers=ANN, on_send=lambda message: seen.append(served.rows()))
            first = await wire.end()
            again = await served.post("/tx")
            assert served.rows() == [1]
            assert all(rows == [1] for rows in seen)
            assert (first.status, again.status, again.replayed, again.body) == (201, 201, True, first.body)

    run(trial())


@pytest.mark.parametrize(("how", "commits"), [("raises", False), ("raises", True), ("mapped", False), ("mapped", True)])
def test_a_failure_answer_is_stored_and_its_effects_are_not(make, tmp_path, how, commits):
    """H2, E4, R15: a 409 raised or mapped is stored as the caller saw it; its row stands only by policy."""

    async def trial():
        settings = {"commits": {409} if commits else ()}
        async with bank(make, tmp_path, how=how, status=409, settings=settings) as served:
            first = await served.post("/tx")
            rows = [1] if commits else []
            assert served.rows() == rows
            assert await served.state() is RecordState.COMPLETED
            again = await served.post("/tx")
            assert served.rows() == rows
            assert (first.status, again.status, again.replayed, again.body) == (409, 409, True, first.body)

    run(trial())


@pytest.mark.parametrize("key", [None, K])
def test_an_exception_rolls_back_and_releases(make, tmp_path, key):
    """R16, B7, R3: an unhandled exception leaves no row and no record, is a 500, and the retry runs."""

    async def trial():
        async with bank(make, tmp_path, how="fails") as served:
            failed = await served.post("/tx", key=key, raises=ZeroDivisionError)
            assert (served.rows(), await served.state()) == ([], None)
            assert failed.status == 500
            assert b"urn:twicesafe" not in failed.body
            served.how = "returns"
            assert (await served.post("/tx", key=key)).status == 201
            assert served.rows() == [1]

    run(trial())


@pytest.mark.parametrize("key", [None, K])
@pytest.mark.parametrize("amount", [666, -1])
def test_an_effect_that_the_database_refuses_is_not_a_success(make, tmp_path, amount, key):
    """H2d: a constraint that fails in its statement (666) or at the commit (-1) is an error, and nothing is stored."""

    async def trial():
        async with bank(make, tmp_path) as served:
            body = b'{"amount": %d}' % amount
            failed = await served.post("/tx", body=body, key=key, raises=Exception)
            assert (served.rows(), await served.state()) == ([], None)
            # Where no layer of the framework is left to answer for it, the server does.
            assert failed.status in (500, 503) or (failed.raised is not None and not failed.messages)

    run(trial())


@pytest.mark.parametrize("fields", [(), (QueryParameter("key"),)])
def test_without_a_key_it_is_a_transaction_all_the_same(make, tmp_path, fields):
    """R3, H2: without a key, wherever one may stand, a success commits, an error rolls back, nothing is recorded."""

    async def trial():
        async with bank(make, tmp_path, status=402, settings={"fields": fields}) as served:
            served.how = "raises"
            assert (await served.post("/tx", key=None)).status == 402
            assert served.rows() == []
            served.how = "returns"
            served.status = 201
            for _ in range(2):
                assert (await served.post("/tx", key=None)).replayed is False
            assert (served.rows(), await served.state()) == ([1, 1], None)

    run(trial())


def test_what_is_refused_before_the_work_leaves_nothing(make, tmp_path):
    """E1, R22: a stranger and an invalid body leave neither row nor record, and the key is free."""

    async def trial():
        async with bank(make, tmp_path) as served:
            assert (await served.post("/tx", user=None)).status == 401
            assert (await served.post("/tx", body=b'{"amount": "much"}')).status == 400
            assert (served.rows(), await served.state()) == ([], None)
            assert (await served.post("/tx")).status == 201
            assert served.rows() == [1]

    run(trial())


@pytest.mark.parametrize("key", [None, K])
def test_a_client_that_leaves(make, tmp_path, key):
    """A1, R14, R3: work under a key is finished and recorded; work without one is cancelled and rolled back."""

    async def trial():
        waiting, go = asyncio.Event(), asyncio.Event()

        async def before():
            waiting.set()
            await go.wait()

        async with bank(make, tmp_path, before=before) as served:
            wire = Wire(served.app, path="/tx", key=key, headers=ANN).start()
            await waiting.wait()
            wire.task.cancel()
            with suppress(asyncio.CancelledError):
                await wire.task
            go.set()
            await served.settled()
            assert served.rows() == ([] if key is None else [1])
            again = await served.post("/tx", key=key)
            assert served.rows() == [1]
            assert again.replayed is (key is not None)

    run(trial())
