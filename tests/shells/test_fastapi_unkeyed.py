"""The transaction of a FastAPI route with a key and without one: where it ends, and how."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

import pytest
from fastapi import Depends, Request
from fastapi.responses import Response, StreamingResponse

from tests.shells.probe import Wire
from tests.shells.service import Bank, K, Work, bank, insert, run
from twicesafe.errors import StoreError, StoreUnavailableError
from twicesafe.stores.sqlite import AsyncSqliteStore


@pytest.mark.parametrize(
    ("how", "status", "rows"),
    [("returns", 201, [1]), ("returns", 409, []), ("raises", 409, []), ("mapped", 409, []), ("fails", 500, [])],
)
def test_without_a_key_the_effects_are_a_transaction_all_the_same(tmp_path, how, status, rows):
    """R3, H2: without a key a success commits before its first byte, all else rolls back, and nothing is recorded."""

    async def trial():
        async with bank(tmp_path, how=how, status=status) as served:
            at_first_byte = []
            lines = [(b"x-user", b"ann"), (b"content-type", b"application/json")]
            wire = Wire(served.app, key=None, headers=lines, on_send=lambda m: at_first_byte.append(served.rows()))
            reply = await wire.end()
            assert served.rows() == rows
            assert at_first_byte[0] == rows
            assert reply.status == status
            assert (await served.post(key=None, raises=ZeroDivisionError)).status == status
            assert served.rows() == rows * 2
            assert await served.state() is None

    run(trial())


def test_without_a_key_a_dependency_gets_the_connection_too(tmp_path):
    """R3, E1: asked for by a dependency, the transaction of a request without a key ends with its answer as well."""

    async def trial():
        async with Bank(tmp_path) as served:

            async def noted(db: Annotated[Any, Depends(served.safe.connection)]) -> Any:
                await insert(db, 7)
                return db

            @served.app.post("/jobs")
            @served.safe.operation(effects="transactional")
            async def work(db: Annotated[Any, Depends(noted)], body: Work) -> dict:
                await insert(db, body.amount)
                return {}

            assert (await served.post(key=None, body=b"{}")).status == 422
            assert served.rows() == []
            assert (await served.post(key=None)).status == 200
            assert served.rows() == [7, 1]

    run(trial())


@pytest.mark.parametrize("key", [None, K])
def test_a_client_that_leaves(tmp_path, key):
    """A1, R14, R3: work under a key is finished and recorded; work without one is cancelled and rolled back."""

    async def trial():
        async with Bank(tmp_path) as served:
            waiting, go = asyncio.Event(), asyncio.Event()

            @served.app.post("/jobs")
            @served.safe.operation(effects="transactional")
            async def work(db: Annotated[Any, Depends(served.safe.connection)]) -> dict:
                await insert(db)
                waiting.set()
                await go.wait()
                return {}

            wire = Wire(served.app, key=key, headers=[(b"x-user", b"ann")]).start()
            await waiting.wait()
            assert wire.task is not None
            wire.task.cancel()
            with suppress(asyncio.CancelledError):
                await wire.task
            go.set()
            while served.pending():
                await asyncio.wait(set(served.safe._shared.running))
            assert served.rows() == ([] if key is None else [1])
            again = await served.post(key=key)
            assert served.rows() == [1]
            assert again.replayed is (key is not None)

    run(trial())


class Echo(Response):
    """Sends what it receives, piece by piece."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            assert message["type"] == "http.request", message
            more = message["more_body"]
            await send({**message, "type": "http.response.body"})
            await asyncio.sleep(0)


def test_a_body_that_is_read_while_the_answer_flows_arrives_whole(tmp_path):
    """H1, R3: without a key nobody but the application takes what the client sends, whatever has been answered."""

    async def trial():
        async with Bank(tmp_path) as served:

            @served.app.post("/jobs")
            @served.safe.operation(effects="transactional", response_limit=10)
            async def work(request: Request, db: Annotated[Any, Depends(served.safe.connection)]) -> Response:
                await insert(db)
                return Echo()

            parts = [b"a piece, number %d" % number for number in range(20)]
            wire = Wire(served.app, key=None, headers=[(b"x-user", b"ann")], parts=parts)
            reply = await wire.end()
            assert served.rows() == [1]
            assert reply.body == b"".join(parts)

    run(trial())


class Flaky:
    """A SQLite store whose transactions fail in the method named."""

    transactional = True

    def __init__(self, store: AsyncSqliteStore, method: str) -> None:
        self.store = store
        self.method = method

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def transaction(self) -> Any:
        transaction = self.store.transaction()

        async def fail(*_: object) -> None:
            raise StoreUnavailableError(f"no {self.method} today")

        setattr(transaction, self.method, fail)
        return transaction


@pytest.mark.parametrize("method", ["begin", "commit"])
def test_a_store_that_fails_without_a_key_is_an_error_of_the_server(tmp_path, method):
    """R3, H2d: a transaction without a key that cannot be begun or committed is a 500 and leaves no row."""

    async def trial():
        async with bank(tmp_path) as served:
            served.safe._shared.store = Flaky(served.store, method)
            failed = await served.post(key=None, raises=StoreError)
            assert served.rows() == []
            assert (failed.status, str(failed.raised)) == (500, f"no {method} today")
            assert len(failed.starts) == 1

    run(trial())


@pytest.mark.parametrize("key", [None, K])
def test_a_stream_may_use_the_transaction_to_its_end(tmp_path, key):
    """D5, R18: what a streamed answer writes on its way is in the transaction; the retry has the whole of it."""

    async def trial():
        async with Bank(tmp_path) as served:

            @served.app.post("/jobs")
            @served.safe.operation(effects="transactional")
            async def work(db: Annotated[Any, Depends(served.safe.connection)]) -> StreamingResponse:
                async def pieces() -> AsyncIterator[str]:
                    for amount in (1, 2, 3):
                        await insert(db, amount)
                        yield f"{amount} "

                return StreamingResponse(pieces())

            first = await served.post(key=key)
            assert served.rows() == [1, 2, 3]
            assert first.body == b"1 2 3 "
            if key:
                again = await served.post()
                assert served.rows() == [1, 2, 3]
                assert (again.body, again.replayed) == (b"1 2 3 ", True)

    run(trial())


@pytest.mark.parametrize("key", [None, K])
def test_an_answer_that_cannot_be_made_rolls_back(tmp_path, key):
    """H2, R16: an endpoint whose return value does not fit its response model has done nothing."""

    async def trial():
        async with Bank(tmp_path) as served:

            @served.app.post("/jobs", response_model=Work)
            @served.safe.operation(effects="transactional")
            async def work(db: Annotated[Any, Depends(served.safe.connection)]) -> Any:
                await insert(db)
                return {"amount": "much"}

            failed = await served.post(key=key, raises=Exception)
            assert (served.rows(), await served.state()) == ([], None)
            assert failed.status == 500

    run(trial())


def test_nothing_done_rolls_back(tmp_path):
    """R15, R3: a handler that declares that it did nothing has its transaction rolled back, with a key or without."""

    async def trial():
        async with Bank(tmp_path) as served:

            @served.app.post("/jobs")
            @served.safe.operation(effects="transactional")
            async def work(
                db: Annotated[Any, Depends(served.safe.connection)],
                attempt: Annotated[Any, Depends(served.safe.current)],
            ) -> dict:
                await insert(db)
                attempt.nothing_done()
                return {}

            for key in (K, None):
                assert (await served.post(key=key)).status == 200
                assert (served.rows(), await served.state()) == ([], None)

    run(trial())
