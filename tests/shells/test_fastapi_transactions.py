"""Effect and answer in one transaction on a FastAPI route: what is stored is what was committed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Depends, HTTPException
from fastapi.responses import JSONResponse, StreamingResponse

from tests.shells.probe import Wire
from tests.shells.service import Bank, K, Work, insert, run
from twicesafe.core.record import RecordState
from twicesafe.errors import StoreError, StoreUnavailableError
from twicesafe.stores.sqlite import AsyncSqliteStore


class RefusedError(Exception):
    """Mapped to 409 by the application."""


async def answer(how: str, status: int) -> Any:
    """End an endpoint in the way named."""
    match how:
        case "returns":
            return JSONResponse({"how": how}, status)
        case "raises":
            raise HTTPException(status, how)
        case "mapped":
            raise RefusedError
        case _:
            raise ZeroDivisionError


def bank(folder, *, how: str = "returns", status: int = 201, amount: int = 1, **settings) -> Bank:
    """`POST /work` inserts a row and then ends as told."""
    served = Bank(folder)

    @served.app.post("/work")
    @served.safe.operation(effects="transactional", **settings)
    async def work(body: Work, db: Annotated[Any, Depends(served.safe.connection)]) -> Any:
        await insert(db, amount)
        return await answer(how, status)

    @served.app.exception_handler(RefusedError)
    async def refused(request, error):
        return JSONResponse({"how": "mapped"}, 409)

    return served


def test_effect_and_answer_commit_together(tmp_path):
    """R23, I11: the row is there when the first byte leaves, once, and the retry is a replay."""

    async def trial():
        async with bank(tmp_path) as served:
            rows_at_first_byte = []
            wire = Wire(
                served.app,
                headers=[(b"x-user", b"ann"), (b"content-type", b"application/json")],
                on_send=lambda message: rows_at_first_byte.append(served.rows()),
            )
            first = await wire.end()
            again = await served.post()
            assert served.rows() == [1]
            assert rows_at_first_byte == [[1], [1]]
            assert (first.status, again.status, again.replayed) == (201, 201, True)
            assert again.body == first.body

    run(trial())


@pytest.mark.parametrize("how", ["returns", "raises", "mapped"])
@pytest.mark.parametrize("commits", [False, True])
def test_a_failure_answer_is_stored_and_its_effects_are_not(tmp_path, how, commits):
    """H2, E4, R15: a 409 returned, raised or mapped is stored as the caller saw it; its row stands only by policy."""

    async def trial():
        async with bank(tmp_path, how=how, status=409, commits={409} if commits else ()) as served:
            first = await served.post()
            rows = [1] if commits else []
            assert served.rows() == rows
            assert await served.state() is RecordState.COMPLETED
            again = await served.post()
            assert served.rows() == rows
            assert (first.status, again.status, again.replayed) == (409, 409, True)
            assert again.body == first.body

    run(trial())


def test_an_exception_rolls_back_and_releases(tmp_path):
    """R16, B7: an unhandled exception leaves no row and no record, reaches the server, and the retry runs."""

    async def trial():
        async with bank(tmp_path, how="fails") as served:
            for _ in range(2):
                failed = await served.post(raises=ZeroDivisionError)
                assert (served.rows(), await served.state()) == ([], None)
                assert (failed.status, failed.body) == (500, b"Internal Server Error")

    run(trial())


@pytest.mark.parametrize("key", [None, K])
@pytest.mark.parametrize("when", ["in its statement", "at the commit"])
def test_an_effect_that_the_database_refuses_is_not_a_success(tmp_path, when, key):
    """H2d: a constraint that fails, deferred to the commit or not, is answered with an error, and nothing is stored."""

    async def trial():
        async with bank(tmp_path, amount=666 if when == "in its statement" else -1) as served:
            for _ in range(2):
                failed = await served.post(key=key, raises=Exception)
                assert (served.rows(), await served.state()) == ([], None)
                assert failed.status in (500, 503)

    run(trial())


@pytest.mark.parametrize("refusal", ["validation", "dependency", "later error"])
@pytest.mark.parametrize("asked_by", ["endpoint", "dependency"])
def test_what_is_refused_before_the_endpoint_leaves_nothing(tmp_path, refusal, asked_by):
    """E1, R22: an invalid body, a refusing and a failing dependency leave neither row nor record, and the key free."""

    async def trial():
        async with Bank(tmp_path) as served:
            refuses = [True]

            async def guard() -> None:
                if refuses[0] and refusal == "dependency":
                    raise HTTPException(403)
                if refuses[0] and refusal == "later error":
                    raise ZeroDivisionError

            async def noted(db: Annotated[Any, Depends(served.safe.connection)]) -> Any:
                await insert(db, 7)
                await guard()
                return db

            asked = served.safe.connection if asked_by == "endpoint" else noted

            @served.app.post("/work", status_code=201)
            @served.safe.operation(effects="transactional")
            async def work(db: Annotated[Any, Depends(asked)], body: Work, _: Annotated[None, Depends(guard)]) -> dict:
                await insert(db)
                return {}

            wrong = b'{"amount": "much"}' if refusal == "validation" else b'{"amount": 1}'
            refused = await served.post(body=wrong, raises=ZeroDivisionError)
            assert (served.rows(), await served.state()) == ([], None)
            assert refused.status == {"validation": 422, "dependency": 403, "later error": 500}[refusal]
            refuses[0] = False
            right = await served.post()
            assert served.rows() == ([1] if asked_by == "endpoint" else [7, 1])
            assert (right.status, right.replayed) == (201, False)
            assert (await served.post()).replayed

    run(trial())


def test_authentication_comes_before_the_connection(tmp_path):
    """R22: the connection stands first in the signature, and every other dependency runs before it all the same."""

    async def trial():
        async with Bank(tmp_path) as served:
            order = []

            async def guard(user: Annotated[str, Depends(served.user)]) -> None:
                order.append(f"guard {user}")

            class Ledger:
                def __init__(self, db: Annotated[Any, Depends(served.safe.connection)]) -> None:
                    order.append("ledger")
                    self.db = db

            @served.app.post("/work")
            @served.safe.operation(effects="transactional")
            async def work(ledger: Annotated[Ledger, Depends()], checked: Annotated[None, Depends(guard)]) -> dict:
                await insert(ledger.db)
                return {}

            await served.post()
            assert served.rows() == [1]
            assert order == ["guard ann", "ledger"]
            assert (await served.post()).replayed
            assert order == ["guard ann", "ledger", "guard ann"]
            served.revoked.add("ann")
            revoked = await served.post()
            assert (revoked.status, revoked.replayed) == (401, False)

    run(trial())


def test_a_replay_found_by_a_dependency_ends_the_request_whatever_stands_between(tmp_path):
    """R17, R22: a dependency that answers for every error and a handler of HTTP errors do not get in the way."""

    async def trial():
        async with Bank(tmp_path) as served:
            seen = []

            async def session(db: Annotated[Any, Depends(served.safe.connection)]) -> AsyncIterator[Any]:
                yield db

            async def meddling() -> AsyncIterator[None]:
                try:
                    yield
                except Exception as error:
                    seen.append(type(error).__name__)
                    raise HTTPException(418) from error

            @served.app.exception_handler(HTTPException)
            async def teapot(request, error):
                return JSONResponse({"tea": True}, error.status_code)

            def tasks(tasks: BackgroundTasks) -> None:
                tasks.add_task(seen.append, "task")

            @served.app.post("/work", status_code=201, dependencies=[Depends(tasks)])
            @served.safe.operation(effects="transactional")
            async def work(_: Annotated[None, Depends(meddling)], db: Annotated[Any, Depends(session)]) -> dict:
                await insert(db)
                return {"n": 1}

            first, again = await served.post(), await served.post()
            assert served.rows() == [1]
            assert (first.status, first.body) == (201, b'{"n":1}')
            assert (again.status, again.body, again.replayed) == (201, b'{"n":1}', True)
            assert seen == ["task", "_AnsweredError"]

    run(trial())


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

            @served.app.post("/work")
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

            @served.app.post("/work")
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

            @served.app.post("/work")
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

            @served.app.post("/work", response_model=Work)
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

            @served.app.post("/work")
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
