"""Streams and files that a FastAPI route answers with."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from fastapi.responses import (
    FileResponse,
    StreamingResponse,
)
from starlette.middleware.gzip import GZipMiddleware

from tests.shells.probe import Wire
from tests.shells.service import Service, Work, run
from twicesafe.core.record import RecordState
from twicesafe.fastapi import Idempotency


def test_a_stream_flows_and_replays_whole():
    """D5, R18: each piece leaves when it is made, and the retry gets all of them."""

    async def trial():
        served = Service()
        arrived: list[bytes] = []
        seen: list[int] = []

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> StreamingResponse:
            async def pieces() -> AsyncIterator[bytes]:
                served.append()
                for piece in (b"a", b"b", b"c"):
                    yield piece
                    seen.append(len(arrived))

            return StreamingResponse(pieces())

        wire = Wire(
            served.app, headers=[(b"x-user", b"ann")], on_send=lambda message: arrived.append(message.get("body", b""))
        )
        first = await wire.end()
        again = await served.post()
        assert served.ledger == [1]
        assert seen == [2, 3, 4]
        assert first.body == again.body == b"abc"
        assert again.replayed

    run(trial())


def test_a_stream_that_breaks_is_never_a_success():
    """D5, K: a stream that raises half-way leaves an unknown outcome; the retry neither runs nor replays a half."""

    async def trial():
        served = Service()

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> StreamingResponse:
            def pieces() -> Iterator[bytes]:
                served.append()
                yield b"a"
                raise ZeroDivisionError

            return StreamingResponse(pieces())

        first = await served.post(raises=ZeroDivisionError)
        again = await served.post()
        assert served.ledger == [1]
        assert await served.state() is RecordState.UNKNOWN
        assert (first.status, first.whole) == (200, False)
        assert (again.status, again.kind) == (409, "outcome-unknown")

    run(trial())


def test_an_endpoint_that_yields_is_claimed_before_its_head_leaves():
    """D5, I2: FastAPI sends the head of a generator endpoint before its first line runs; of two attempts one runs."""

    async def trial():
        served = Service()
        waiting, go = asyncio.Event(), asyncio.Event()

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work(body: Work) -> AsyncIterator[dict[str, int]]:
            waiting.set()
            await go.wait()
            yield served.append(body.amount)
            yield {"n": 0}

        lines = [(b"x-user", b"ann"), (b"content-type", b"application/json")]
        wire = Wire(served.app, headers=lines).start()
        await waiting.wait()
        rival = await served.post()
        assert (rival.status, rival.kind) == (409, "in-progress")
        go.set()
        first = await wire.end()
        again = await served.post()
        assert served.ledger == [1]
        assert (first.status, first.body) == (200, b'{"n":1}\n{"n":0}\n')
        assert (again.body, again.replayed) == (first.body, True)
        assert (await served.post(body=b"{}", key="another-key-00001")).status == 422
        assert await served.state("another-key-00001") is None

    run(trial())


def test_a_blocking_endpoint_that_yields():
    """D5: a generator endpoint of blocking code runs once too, without a key each time."""

    async def trial():
        served = Service()

        @served.app.post("/jobs", response_class=StreamingResponse)
        @served.safe.operation()
        def work() -> Iterator[str]:
            yield str(served.append()["n"])

        first, again = await served.post(), await served.post()
        assert served.ledger == [1]
        assert (first.body, again.body, again.replayed) == (b"1", b"1", True)
        assert [(await served.post(key=None)).body for _ in range(2)] == [b"2", b"3"]

    run(trial())


@pytest.mark.parametrize("pathsend", [False, True])
def test_a_file_replays_whole(tmp_path, pathsend):
    """K, R17: a file response, handed to the server as a path or not, is recorded with all its bytes."""

    async def trial():
        served = Service()
        file = tmp_path / "receipt.bin"
        file.write_bytes(bytes(range(256)) * 1000)

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> FileResponse:
            served.append()
            return FileResponse(file, filename='a,"b".bin')

        replies = []
        for _ in range(2):
            wire = Wire(served.app, headers=[(b"x-user", b"ann")])
            if pathsend:
                wire.scope["extensions"] = {"http.response.pathsend": {}}
            replies.append(await wire.end())
        first, again = replies
        assert served.ledger == [1]
        assert first.body == again.body == file.read_bytes()
        assert again.lines == [*first.lines, (b"idempotent-replayed", b"true")]

    run(trial())


def test_compression_around_it_compresses_each_answer_by_itself():
    """D4: what is recorded is not compressed; each caller gets it as it asked, whichever middleware came first."""

    async def trial():
        served = Service()
        served.app.add_middleware(GZipMiddleware, minimum_size=10)
        late = Idempotency(served.app, served.store, scope=served.user)

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, str]:
            served.append()
            return {"text": "x" * 1000}

        @served.app.post("/late")
        @late.operation()
        async def work_late() -> dict[str, str]:
            served.append()
            return {"text": "x" * 1000}

        for path, key in (("/jobs", "first-key-0000001"), ("/late", "second-key-000001")):
            packed = await served.post(path, key=key, headers=[(b"accept-encoding", b"gzip")])
            plain = await served.post(path, key=key, headers=[(b"accept-encoding", b"identity")])
            assert packed.header(b"content-encoding") == b"gzip"
            assert plain.header(b"content-encoding") is None
            assert plain.body == b'{"text":"' + b"x" * 1000 + b'"}'
            assert plain.replayed
        assert served.ledger == [1, 1]

    run(trial())
