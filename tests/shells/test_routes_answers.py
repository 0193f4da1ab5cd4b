"""What is recorded of an answer on a route of Starlette, Quart or Litestar, and what a replay sends again."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from tests.shells import board_litestar, board_quart, board_starlette
from tests.shells.board import LINES, Board, Make, board, run
from tests.shells.probe import Wire
from twicesafe.core.record import RecordState
from twicesafe.stores.memory import AsyncMemoryStore

ANN = [(b"x-user", b"ann"), (b"content-type", b"application/json")]


@pytest.fixture(params=[board_starlette, board_quart, board_litestar], ids=["starlette", "quart", "litestar"])
def make(request) -> Make:
    return request.param.make


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("how", "status"), [("raises", 402), ("raises", 500), ("mapped", 409)])
def test_the_answer_of_an_error_handler_is_recorded(make, how, status, when):
    """E4a, E4b, R15: an HTTP error and one that the application maps are stored as the first caller saw them."""

    async def trial():
        served = board(make, how=how, status=status, when=when)
        first, again = [await served.post() for _ in range(2)]
        assert served.ledger == ([1] if when == "after" else [])
        assert (first.status, first.replayed) == (status, False)
        assert (again.status, again.replayed, again.body) == (status, True, first.body)
        assert again.lines[:-1] == first.lines
        assert (b"mapped" in first.body) is (how == "mapped")

    run(trial())


def test_an_exception_in_opaque_work_is_the_answer(make):
    """E4c, R16, B7: an exception that nobody handles is sent as a 500 and stored as that; nothing runs again."""

    async def trial():
        served = board(make, how="fails")
        first, again = [await served.post(raises=ZeroDivisionError) for _ in range(2)]
        assert served.ledger == [1]
        assert (first.status, first.replayed) == (500, False)
        assert (again.status, again.replayed, again.body) == (500, True, first.body)
        assert len(first.starts) == 1 and first.whole

    run(trial())


def test_an_exception_in_keyed_work_runs_again(make):
    """R13, R16, B7: what is keyed answers the framework's own 500, is not stored, and may run again at once."""

    async def trial():
        served = board(make, how="fails")
        first = await served.post("/keyed", raises=ZeroDivisionError)
        assert (first.status, first.header(b"content-type") == b"application/problem+json") == (500, False)
        assert (b"idempotency-key-retention", b"86400") in first.lines or first.raised is not None
        served.how = "returns"
        again = await served.post("/keyed")
        assert served.ledger == [1, 1]
        assert (again.status, again.replayed) == (201, False)
        assert (await served.post("/keyed")).replayed

    run(trial())


def test_an_exception_may_leave_the_outcome_unknown(make):
    """R16, I6: where somebody settles unknown outcomes, an exception of opaque work is held as one, and loudly."""

    async def trial():
        served = board(make, how="fails", settings={"unknown_on_error": True})
        first = await served.post(raises=ZeroDivisionError)
        assert first.status == 500
        assert await served.state() is RecordState.UNKNOWN
        again = await served.post()
        assert served.ledger == [1]
        assert (again.status, again.kind) == (409, "outcome-unknown")
        assert "outcome.unknown" in served.told

    run(trial())


@pytest.mark.parametrize("how", [{"how": "raises", "status": 503}, {"nothing_done": True}])
def test_an_answer_that_says_that_nothing_was_done_is_not_stored(make, how):
    """R15, E3: 503, and whatever comes after nothing_done(), leaves the key free for the next attempt."""

    async def trial():
        served = board(make, **how)
        first = await served.post()
        assert first.status == how.get("status", 201)
        assert len(served.store) == 0
        served.how, served.nothing_done = "returns", False
        again = await served.post()
        assert (again.replayed, served.ledger) == (False, [1, 1])

    run(trial())


@pytest.mark.parametrize("path", ["/jobs", "/keyed"])
def test_background_tasks_run_once(make, path):
    """R17, H1: a task asked for by the answer, or by the route, runs after the first answer and not after a replay."""

    async def trial():
        served = board(make)
        for _ in range(3):
            assert (await served.post(path)).status == 201
            await asyncio.sleep(0)
        await _until(lambda: served.ran)
        assert (served.ledger, served.ran) == ([1], ["task"])

    run(trial())


async def _until(met) -> None:
    for _ in range(10_000):
        if met():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("cookies", [False, True])
def test_header_lines_and_bytes_are_kept_as_they_were(make, cookies):
    """D1, D3, D4, K: two lines of a name stay two, commas stay, bytes stay; cookies are sent again by choice only."""

    async def trial():
        served = board(make, settings={"store_cookies": cookies})
        first, again = [await served.post("/lines") for _ in range(2)]
        assert served.ledger == [1]
        assert [first.body, again.body] == [b"\x00\xff"] * 2
        assert [line for line in again.lines if line in LINES] == list(LINES)
        given = [line for name, line in first.lines if name == b"set-cookie"]
        assert len(given) == 2
        assert [line for name, line in again.lines if name == b"set-cookie"] == (given if cookies else [])

    run(trial())


def test_a_stream_flows_and_is_replayed_whole(make):
    """D5, R18: the first chunk is sent while the second is still made, and the retry has the whole of it."""

    async def trial():
        go, wires = asyncio.Event(), []

        async def between(number):
            if number == 1:
                assert b"one " in wires[0].reply.body
                assert await served.state() is RecordState.CLAIMED
                go.set()

        served = board(make, between=between)
        wires.append(Wire(served.app, path="/stream", headers=ANN))
        first = await wires[0].end()
        assert go.is_set()
        again = await served.post("/stream")
        assert served.ledger == [1]
        assert (first.body, again.body, again.replayed) == (b"one two three", b"one two three", True)

    run(trial())


@pytest.mark.parametrize("path", ["/stream", "/events"])
def test_a_stream_that_breaks_is_no_success(make, path):
    """D5, K: a stream that raises after its chunks is never stored as a complete answer, and not run again."""

    async def trial():
        served = board(make, how="breaks")
        first = await served.post(path, raises=Exception)
        assert not first.whole
        assert await served.state() is RecordState.UNKNOWN
        again = await served.post(path)
        assert served.ledger == [1]
        assert (again.status, again.kind) == (409, "outcome-unknown")

    run(trial())


def test_endless_events_flow_until_the_client_leaves(make):
    """D5, R18, A1: server-sent events flow live; the client gone, they end, and a retry learns that it is done."""

    async def trial():
        on, wires = asyncio.Event(), []

        async def between(number):
            if number == 1:
                assert b"one" in wires[0].reply.body
                wires[0].hang_up()
                await on.wait()

        served = board(make, between=between)
        wires.append(Wire(served.app, path="/events", headers=ANN).start())
        await wires[0].end()
        await served.settled()
        assert not wires[0].reply.whole
        again = await served.post("/events")
        assert served.ledger == [1]
        assert (again.status, again.kind, again.replayed) == (201, "result-not-kept", True)

    run(trial())


@pytest.mark.parametrize("size", [0, 3, 100_000])
def test_a_file_is_sent_and_replayed(make, tmp_path, size):
    """K, D4: a file reaches its first caller and the next, byte for byte, though it is gone by then."""

    async def trial():
        file = tmp_path / "report.bin"
        file.write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
        served = board(make, file=file)
        whole = file.read_bytes()
        first = await served.post("/file")
        file.unlink()
        again = await served.post("/file")
        assert served.ledger == [1]
        assert (first.status, first.body) == (201, whole)
        assert (again.status, again.body, again.replayed) == (201, whole, True)

    run(trial())


def test_a_file_by_its_path_is_sent_and_replayed(make, tmp_path):
    """K: a server that takes files by their path gets the bytes instead, and the retry has them."""

    async def trial():
        file = tmp_path / "report.bin"
        file.write_bytes(b"x" * 70_000)
        served = board(make, file=file)
        replies = []
        for _ in range(2):
            wire = Wire(served.app, path="/file", headers=ANN)
            wire.scope["extensions"] = {"http.response.pathsend": {}}
            replies.append(await wire.end())
        assert served.ledger == [1]
        assert [reply.body for reply in replies] == [b"x" * 70_000] * 2
        assert replies[1].replayed

    run(trial())


def test_an_answer_over_the_limit_reaches_its_first_caller(make):
    """A4, R18: the first caller gets all of it, retries are told that it is done, and nothing runs again."""

    async def trial():
        served = board(make, chunks=(b"x" * 600,) * 4, settings={"response_limit": 1000})
        first = await served.post("/stream")
        replies = [await served.post("/stream") for _ in range(2)]
        assert served.ledger == [1]
        assert first.body == b"x" * 2400
        assert [(reply.status, reply.kind) for reply in replies] == [(201, "result-not-kept")] * 2

    run(trial())


def test_blocking_work_is_done_in_a_thread(make):
    """R14, H1: an endpoint that blocks runs in a thread of its own, once, and is replayed without one."""

    async def trial():
        served = board(make)
        for _ in range(3):
            assert (await served.post("/blocking")).status == 201
        assert served.ledger == [1]
        assert len(served.threads) == 1
        assert threading.get_ident() not in served.threads

    run(trial())


def test_downstream_calls_get_a_key(make):
    """R25: the handler knows its key, empty where none was sent."""

    async def trial():
        served = board(make)
        await served.post("/keyed")
        await served.post("/keyed", key=None)
        assert served.seen == ["k-0001-0001-0001", ""]
        assert served.ledger == [1, 1]

    run(trial())


MODULES = [board_starlette, board_quart, board_litestar]


@pytest.mark.parametrize("module", MODULES, ids=["starlette", "quart", "litestar"])
def test_a_duplicate_may_get_an_answer_made_anew(module):
    """R19: by choice a retry gets the state of today, or what is stored where the application says so; nothing runs."""

    async def trial():
        served = Board(AsyncMemoryStore())
        settings = {"duplicates": "rebuilt", "rebuild": module.rebuilding(served)}
        module.make(served, settings)
        first = await served.post()
        served.ledger.append(7)
        again = await served.post()
        assert served.ledger == [1, 7]
        assert (first.status, again.status, again.replayed) == (201, 200, True)
        assert json.loads(again.body) == {"today": 2}
        assert again.header(b"content-type") == b"application/json"
        plain = [await served.post(query=b"a=1", key="another-key") for _ in range(2)]
        assert (plain[1].replayed, plain[1].body) == (True, plain[0].body)
        assert "rebuild.failed" not in served.told

    run(trial())
