"""What comes before what on a FastAPI route: authentication, validation, the claim, the endpoint, the record."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import JSONResponse
from starlette.middleware.base import BaseHTTPMiddleware

from tests.shells.probe import Wire
from tests.shells.service import Service, Work, run, service
from twicesafe import PUBLIC
from twicesafe.core.record import RecordState


def test_a_retry_gets_the_first_answer():
    """R11, R17, R42: one effect, and the retry carries the first answer with the marker."""

    async def trial():
        served = service()
        first, second = [await served.post() for _ in range(2)]
        assert served.ledger == [1]
        assert (first.status, first.body, first.replayed) == (201, b'{"n":1}', False)
        assert (second.status, second.body, second.replayed) == (201, b'{"n":1}', True)
        assert second.lines[:-1] == first.lines

    run(trial())


def test_rivals_run_once():
    """R10, C1: of 20 concurrent attempts one runs; every other gets the answer or 409 with Retry-After."""

    async def trial():
        served = Service()
        go = asyncio.Event()

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work(body: Work) -> dict[str, int]:
            await go.wait()
            return served.append(body.amount)

        wires = [
            Wire(
                served.app, path="/jobs", headers=[(b"x-user", b"ann"), (b"content-type", b"application/json")]
            ).start()
            for _ in range(20)
        ]
        left = {wire.task for wire in wires}
        while len(left) > 1:
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        go.set()
        replies = [await wire.end() for wire in wires]
        assert served.ledger == [1]
        assert sorted({reply.status for reply in replies}) == [200, 409]
        assert all(reply.header(b"retry-after") == b"1" for reply in replies if reply.status == 409)

    run(trial())


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"user": None}, 401),
        ({"path": "/nowhere"}, 404),
        ({"path": "/reading"}, 405),
        ({"body": b'{"amount": "much"}'}, 422),
        ({"body": b'{"amount": '}, 422),
        ({"headers": [(b"content-type", b"text/plain")], "body": b"amount"}, 422),
        ({"body": b'{"amount": 1, "padding": "' + b"x" * 2000 + b'"}'}, 413),
        ({"path": "/jobs/"}, 307),
    ],
)
def test_a_request_that_is_refused_before_the_endpoint_leaves_the_key_free(how, status):
    """E1, E2, R15: after 401, 404, 405, 413, 422 or a redirect nothing is stored, and the correct call runs."""

    async def trial():
        served = service(body_limit=1000)

        @served.app.get("/reading")
        async def reading() -> None: ...

        refused = await served.post(**how)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert refused.status == status
        assert not refused.replayed
        right = await served.post()
        assert served.ledger == [1]
        assert right.status == 201

    run(trial())


@pytest.mark.parametrize("where", ["endpoint", "route", "router", "application", "middleware"])
def test_authentication_comes_before_the_claim_and_before_the_replay(where):
    """R22, E1: wherever it is that callers are checked, a stranger claims nothing, a revoked one sees nothing."""

    async def trial():
        served = Service(scope=PUBLIC)
        checks = [Depends(served.user)]

        async def checked(request: Request, call_next):
            try:
                served.user(request.headers.get("x-user", ""))
            except HTTPException as error:
                return JSONResponse({}, error.status_code)
            return await call_next(request)

        router = APIRouter(dependencies=checks if where == "router" else [])

        if where == "endpoint":

            @router.post("/jobs", status_code=201)
            @served.safe.operation()
            async def work(body: Work, user: Annotated[str, Depends(served.user)]) -> dict[str, int]:
                return served.append(body.amount)

        else:

            @router.post("/jobs", status_code=201, dependencies=checks if where == "route" else [])
            @served.safe.operation()
            async def work(body: Work) -> dict[str, int]:
                return served.append(body.amount)

        served.app.include_router(router, dependencies=checks if where == "application" else [])
        if where == "middleware":
            served.app.add_middleware(BaseHTTPMiddleware, dispatch=checked)
        assert (await served.post(user=None)).status == 401
        assert len(served.store) == 0
        assert (await served.post()).status == 201
        served.revoked.add("ann")
        revoked = await served.post()
        assert served.ledger == [1]
        assert (revoked.status, revoked.replayed) == (401, False)
        served.revoked.clear()
        assert (await served.post()).replayed

    run(trial())


def test_a_replay_is_validated_as_a_first_run_is():
    """R22: an endpoint that takes less than it took answers the old request with 422, not with the old answer."""

    async def trial():
        served = Service()
        most = [100]

        def modest(body: Work) -> Work:
            if body.amount > most[0]:
                raise HTTPException(422, "too much")
            return body

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work(body: Annotated[Work, Depends(modest)]) -> dict[str, int]:
            return served.append(body.amount)

        await served.post(body=b'{"amount": 50}')
        most[0] = 10
        again = await served.post(body=b'{"amount": 50}')
        assert served.ledger == [50]
        assert (again.status, again.replayed) == (422, False)
        assert await served.state() is RecordState.COMPLETED

    run(trial())


def test_dependencies_with_their_own_sessions_end_well_on_a_replay():
    """R17: on a replay a dependency's session is opened and closed as on any request, and does not do its work."""

    async def trial():
        served = Service()
        sessions: list[str] = []

        class Session:
            async def __aenter__(self):
                sessions.append("open")
                return self

            async def __aexit__(self, kind, error, trace):
                sessions.append("commit" if kind is None else f"rollback {kind.__name__}")

        async def session() -> AsyncIterator[Session]:
            async with Session() as opened:
                yield opened

        class Repository:
            def __init__(self, opened: Annotated[Session, Depends(session)]) -> None:
                self.opened = opened

            def add(self, amount: int) -> dict[str, int]:
                return served.append(amount)

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work(body: Work, repository: Annotated[Repository, Depends()]) -> dict[str, int]:
            return repository.add(body.amount)

        replies = [await served.post() for _ in range(2)]
        assert served.ledger == [1]
        assert sessions == ["open", "commit"] * 2
        assert [reply.replayed for reply in replies] == [False, True]

    run(trial())


def test_a_client_that_leaves_before_the_claim_is_an_ordinary_request():
    """A1, R14: cancelled while it authenticates, a request ends there: nothing is claimed, the retry runs."""

    async def trial():
        waiting, go = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            waiting.set()
            await go.wait()
            return "ann"

        served = Service(scope=slow)

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            return served.append()

        wire = Wire(served.app).start()
        await waiting.wait()
        assert wire.task is not None
        wire.task.cancel()
        assert isinstance((await wire.end()).raised, asyncio.CancelledError)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert not served.safe._shared.running
        go.set()
        assert (await served.post()).body == b'{"n":1}'

    run(trial())


def test_a_client_that_leaves_after_the_claim_changes_nothing():
    """A1, R14: cancelled while the endpoint works, the work is finished and recorded."""

    async def trial():
        served = Service()
        waiting, go = asyncio.Event(), asyncio.Event()

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            waiting.set()
            await go.wait()
            return served.append()

        wire = Wire(served.app, headers=[(b"x-user", b"ann"), (b"content-type", b"application/json")]).start()
        await waiting.wait()
        assert wire.task is not None
        wire.task.cancel()
        assert isinstance((await wire.end()).raised, asyncio.CancelledError)
        go.set()
        while served.safe._shared.running:
            await asyncio.wait(set(served.safe._shared.running))
        again = await served.post()
        assert served.ledger == [1]
        assert again.replayed

    run(trial())


def test_half_an_upload_claims_nothing():
    """R9, H1: the client vanishes in the middle of its body, read by FastAPI or by nobody; nothing is claimed."""

    async def trial():
        served = service()

        @served.app.post("/bare")
        @served.safe.operation()
        async def bare() -> dict[str, int]:
            return served.append("bare")

        for path in ("/jobs", "/bare"):
            await served.post(path, parts=[b'{"amou', b'nt": '], cut=True)
            assert (served.ledger, len(served.store)) == ([], 0)

    run(trial())
