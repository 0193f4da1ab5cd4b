"""What is Quart's own about a request: functions before and after it, error handlers, its receive loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from quart import Quart, Response, abort, make_response, request, session

from tests.shells.board import board
from tests.shells.board_quart import make
from tests.shells.probe import Wire
from tests.shells.probe import post as send
from tests.shells.service import run
from twicesafe import PUBLIC
from twicesafe.core.record import RecordState
from twicesafe.quart import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore


async def turns(met: Callable[[], Any]) -> None:
    """Let others go on until they have come so far."""
    for _ in range(100_000):
        if met():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


ANN = [(b"x-user", b"ann"), (b"content-type", b"application/json")]


def test_functions_around_the_request():
    """R17, R22, E4: those before run on a replay too; what those after it add is recorded, and they count it once."""

    async def trial():
        ran: list[str] = []
        app = Quart("app")
        app.secret_key = "secret"
        safe = Idempotency(app, AsyncMemoryStore(), scope=PUBLIC)

        @app.before_request
        async def before() -> None:
            ran.append("before")

        @app.after_request
        async def after(response: Response) -> Response:
            response.headers["x-after"] = f"{len(ran)}"
            return response

        @app.post("/jobs")
        @safe.operation()
        async def work() -> Response:
            ran.append("work")
            session["seen"] = True
            return await make_response({"n": 1}, 201)

        first, again = [await send(app) for _ in range(2)]
        assert ran == ["before", "work", "before"]
        assert first.header(b"x-after") == again.header(b"x-after") == b"2"
        assert first.header(b"set-cookie") is not None and again.header(b"set-cookie") is None
        assert (again.status, again.replayed, again.body) == (201, True, first.body)

    run(trial())


def test_what_is_added_to_every_answer_is_added_to_what_stands_in_for_one():
    """G8, R17: a header of a function after the request is on replays and refusals, once, and changes nothing else."""

    async def trial():
        served = board(make)

        @served.app.after_request
        async def allow(response: Response) -> Response:
            response.headers["access-control-allow-origin"] = "https://shop.example"
            response.headers["content-language"] = "la"
            response.status_code = 200
            return response

        first = await served.post("/lines")
        again, refused = await served.post("/lines"), await served.post("/lines", body=b"other")
        for reply in (first, again, refused):
            assert reply.header(b"access-control-allow-origin") == b"https://shop.example"
        assert served.ledger == [1]
        assert (first.status, again.status, again.replayed, again.body) == (200, 200, True, first.body)
        assert (refused.status, refused.kind, refused.header(b"content-language")) == (422, "key-reused", b"en")

    run(trial())


def test_an_error_handler_for_everything_renders_what_is_not_stored():
    """E4, R16: errorhandler(500) makes the page of keyed work that failed; errorhandler(Exception) makes its answer."""

    async def trial():
        served = board(make, how="fails")

        @served.app.errorhandler(500)
        async def page(error: Any) -> tuple[str, int]:
            return "sorry", 500

        first = await served.post("/keyed")
        assert (first.status, first.body) == (500, b"sorry")
        again = await served.post("/keyed")
        assert (served.ledger, again.replayed) == ([1, 1], False)

        @served.app.errorhandler(Exception)
        async def answer(error: Exception) -> tuple[str, int]:
            return "answered", 418

        replies = [await served.post("/keyed") for _ in range(2)]
        assert served.ledger == [1, 1, 1]
        assert [(reply.status, reply.body) for reply in replies] == [(418, b"answered")] * 2
        assert replies[1].replayed

    run(trial())


def test_in_debug_mode_the_traceback_is_shown_of_what_is_not_stored():
    """R16: keyed work that failed shows its traceback in debug mode; the record of opaque work is what it always is."""

    async def trial():
        served = board(make, how="fails")
        served.app.debug = True
        replies = [await served.post("/keyed", key=key) for key in ("some-key-1", "some-key-1")]
        assert served.ledger == [1, 1]
        assert all(reply.status == 500 and b"ZeroDivisionError" in reply.body for reply in replies)
        first, again = [await served.post() for _ in range(2)]
        assert served.ledger == [1, 1, 1]
        assert (first.status, again.status, again.replayed, again.body) == (500, 500, True, first.body)

    run(trial())


def test_aborting_before_the_work_leaves_nothing():
    """E1, R22: a scope that aborts, or says nobody, claims nothing."""

    async def trial():
        app, store = Quart("app"), AsyncMemoryStore()

        async def who() -> str | None:
            if request.headers.get("x-user") == "eve":
                abort(410)
            return request.headers.get("x-user")

        safe = Idempotency(app, store, scope=who)

        @app.post("/jobs")
        @safe.operation()
        async def work() -> str:
            return "done"

        for lines, status in (([(b"x-user", b"eve")], 410), ([], 403)):
            assert (await send(app, headers=lines)).status == status
            assert len(store) == 0
        assert (await send(app, headers=[(b"x-user", b"ann")])).status == 200

    run(trial())


def test_a_view_may_read_its_body_as_it_comes():
    """H1: a view that streams its request gets every byte, and the fingerprint is that of the whole."""

    async def trial():
        app, seen = Quart("app"), []
        safe = Idempotency(app, AsyncMemoryStore(), scope=PUBLIC)

        @app.post("/jobs")
        @safe.operation()
        async def work() -> str:
            seen.append(b"".join([part async for part in request.body]))
            return "done"

        parts = [b"x" * 70_000, b"y" * 70_000, b"z"]
        assert (await send(app, parts=parts)).status == 200
        assert (await send(app, parts=[b"".join(parts)])).replayed
        assert (await send(app, parts=[*parts, b"!"])).kind == "key-reused"
        assert seen == [b"".join(parts)]

    run(trial())


def test_a_slow_upload_is_waited_for():
    """R9, H1: a view is reached before its body is there; the claim waits for the last byte, and hears of a hang-up."""

    async def trial():
        served = board(make)
        for ends in ("whole", "gone"):
            queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
            wire = Wire(served.app, path="/lines", key=ends, headers=ANN)
            wire.receive = queue.get
            wire.start()
            queue.put_nowait({"type": "http.request", "body": b"one", "more_body": True})
            await turns(queue.empty)
            await turns(lambda: served.authenticated)
            assert served.ledger == ([] if ends == "whole" else [1])
            last = {"type": "http.request", "body": b"two"} if ends == "whole" else {"type": "http.disconnect"}
            queue.put_nowait(last)
            await wire.end()
        assert served.ledger == [1]
        assert await served.state("gone") is None
        assert await served.state("whole") is RecordState.COMPLETED

    run(trial())


def test_a_hang_up_while_a_stream_flows():
    """D5, R14: a stream of a known end goes on for its record when the client hangs up, and the retry has all of it."""

    async def trial():
        go, wires = asyncio.Event(), []

        async def between(number: int) -> None:
            if number == 1:
                wires[0].hang_up()
                await asyncio.sleep(0)
                await go.wait()

        served = board(make, between=between)
        wires.append(Wire(served.app, path="/stream", headers=ANN).start())
        await turns(lambda: served.ledger)
        asyncio.get_running_loop().call_later(0, go.set)
        await wires[0].end()
        await served.settled()
        again = await served.post("/stream")
        assert served.ledger == [1]
        assert (again.body, again.replayed) == (b"one two three", True)

    run(trial())
