"""Effect and answer in one transaction on a FastAPI route: what is stored is what was committed."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Depends, HTTPException
from fastapi.responses import JSONResponse

from tests.shells.probe import Wire
from tests.shells.service import Bank, K, Work, bank, insert, run
from twicesafe.core.record import RecordState


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

            @served.app.post("/jobs", status_code=201)
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

            @served.app.post("/jobs")
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

            @served.app.post("/jobs", status_code=201, dependencies=[Depends(tasks)])
            @served.safe.operation(effects="transactional")
            async def work(
                _: Annotated[None, Depends(meddling)], db: Annotated[Any, Depends(session, scope="function")]
            ) -> dict:
                await insert(db)
                return {"n": 1}

            first, again = await served.post(), await served.post()
            assert served.rows() == [1]
            assert (first.status, first.body) == (201, b'{"n":1}')
            assert (again.status, again.body, again.replayed) == (201, b'{"n":1}', True)
            assert seen == ["task", "_AnsweredError"]

    run(trial())
