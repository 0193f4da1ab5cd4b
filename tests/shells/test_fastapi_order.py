"""What comes before what on a FastAPI route: authentication, validation, the claim, the endpoint, the record."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import wraps
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, File, Form, Header, HTTPException, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.middleware.base import BaseHTTPMiddleware

from tests.shells.probe import Wire, post
from tests.shells.service import K, Service, Work, run
from twicesafe import JSON, PUBLIC, FingerprintRule, KeyRule, KeySyntax, Policy
from twicesafe.asgi import IdempotencyMiddleware, current
from twicesafe.core.record import RecordState
from twicesafe.errors import ConfigurationError
from twicesafe.fastapi import Idempotency, KeyedRequest


def service(**settings) -> Service:
    """`POST /work` appends its amount to the ledger."""
    served = Service()

    @served.app.post("/work", status_code=201)
    @served.safe.operation(**settings)
    async def work(body: Work) -> dict[str, int]:
        return served.append(body.amount)

    return served


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

        @served.app.post("/work")
        @served.safe.operation()
        async def work(body: Work) -> dict[str, int]:
            await go.wait()
            return served.append(body.amount)

        wires = [
            Wire(
                served.app, path="/work", headers=[(b"x-user", b"ann"), (b"content-type", b"application/json")]
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


# --- E1: what never reaches the endpoint leaves no record -------------------------------------------------------------


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
        ({"path": "/work/"}, 307),
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

            @router.post("/work", status_code=201)
            @served.safe.operation()
            async def work(body: Work, user: Annotated[str, Depends(served.user)]) -> dict[str, int]:
                return served.append(body.amount)

        else:

            @router.post("/work", status_code=201, dependencies=checks if where == "route" else [])
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

        @served.app.post("/work")
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


# --- G1, R6: whose key it is ------------------------------------------------------------------------------------------


def test_callers_do_not_share_keys():
    """G1, R6, I7: the same key and body of another user is another intent."""

    async def trial():
        served = service()
        replies = [await served.post(user=user) for user in ("ann", "bob", "ann")]
        assert served.ledger == [1, 1]
        assert [reply.body for reply in replies] == [b'{"n":1}', b'{"n":2}', b'{"n":1}']
        assert [reply.replayed for reply in replies] == [False, False, True]

    run(trial())


def test_a_new_login_is_the_same_caller():
    """R6, F5: another token of the same user is answered with the first answer."""

    async def trial():
        bearer = HTTPBearer()
        users = {"t1": "ann", "t2": "ann"}

        async def user(token: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]) -> str:
            return users[token.credentials]

        served = Service(scope=user)

        @served.app.post("/work")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            return served.append()

        for token in (b"t1", b"t2"):
            reply = await served.post(headers=[(b"authorization", b"Bearer " + token)])
        assert served.ledger == [1]
        assert reply.replayed

    run(trial())


def test_a_caller_who_cannot_be_named_is_refused():
    """G1, R6: a scope that gives None, or an empty one, claims nothing: 403."""

    async def trial():
        names = iter([None, ""])

        def nobody() -> str | None:
            return next(names)

        served = Service(scope=nobody)

        @served.app.post("/work")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            return served.append()

        for _ in range(2):
            refused = await served.post()
            assert (served.ledger, len(served.store)) == ([], 0)
            assert (refused.status, refused.kind) == (403, "caller-unknown")

    run(trial())


def test_a_scope_that_is_no_text_is_a_fault_of_the_server():
    """R6: an identity of another type runs nothing, and the error says what to return."""

    async def trial():
        served = Service(scope=lambda: {"id": 1})

        @served.app.post("/work")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            return served.append()

        failed = await served.post(raises=ConfigurationError)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert "must give a str" in str(failed.raised)

    run(trial())


def test_one_application_may_have_two_kinds_of_callers():
    """R6: a public operation beside those of users, each with its own Idempotency, on one application."""

    async def trial():
        served = service()
        public = Idempotency(served.app, served.store, scope=PUBLIC)

        @served.app.post("/hook")
        @public.operation(required=True)
        async def hook() -> dict[str, int]:
            return served.append("hook")

        for _ in range(2):
            await served.post("/hook", user=None, key="hook-000000000001")
            await served.post()
        assert served.ledger == ["hook", 1]
        assert (await served.post(user=None)).status == 401

    run(trial())


# --- the key ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("required", [False, True])
def test_a_missing_key_passes_or_is_demanded(required):
    """R3, G6: without a key the endpoint runs each time, or 400 where the operation requires one; nothing is stored."""

    async def trial():
        served = service(required=required)
        replies = [await served.post(key=None) for _ in range(3)]
        assert served.ledger == ([] if required else [1, 1, 1])
        assert len(served.store) == 0
        assert {reply.status for reply in replies} == {400 if required else 201}
        if required:
            assert replies[0].kind == "key-missing"

    run(trial())


@pytest.mark.parametrize("key", [b"", b"  ", b"x" * 256, b"a\xffb", b'"open'])
def test_a_malformed_key_is_refused(key):
    """R4, G5: 400 before anything is looked up."""

    async def trial():
        served = service()
        refused = await served.post(key=key)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert (refused.status, refused.kind) == (400, "key-invalid")

    run(trial())


def test_settings_of_a_policy_hold_on_the_route():
    """R2, R4, R5, R8: the header's name, the key's format, the fingerprint and the method are each operation's own."""

    async def trial():
        served = Service()
        strict = Policy(
            header="X-Request-Key", key=KeyRule(KeySyntax.UUID), fingerprint=FingerprintRule(JSON), methods={"PUT"}
        )

        @served.app.put("/work")
        @served.safe.operation(strict, required=True)
        async def work(body: Work) -> dict[str, int]:
            return served.append(body.amount)

        uuid = b"8e03978e-40d5-43e8-bc93-6894a57f9324"
        assert (await served.post(method="PUT")).kind == "key-missing"
        assert (await served.post(method="PUT", headers=[(b"x-request-key", b"no-uuid")])).kind == "key-invalid"
        for body in (b'{"amount": 5}', b'{ "amount":5}'):
            reply = await served.post(method="PUT", key=None, body=body, headers=[(b"x-request-key", uuid)])
        assert served.ledger == [5]
        assert reply.replayed

    run(trial())


def test_a_key_of_one_operation_is_refused_by_another():
    """G2, R7, I4: another route, another path parameter, a mounted route of the same name: never the first answer."""

    async def trial():
        served = Service()
        inside = FastAPI()
        mounted = Idempotency(inside, served.store, scope=served.user)

        @served.app.post("/tickets/{number}")
        @served.safe.operation()
        async def ticket(number: int) -> dict[str, int]:
            return served.append(number)

        @served.app.delete("/tickets/{number}")
        @served.safe.operation(methods={"DELETE"})
        async def drop(number: int) -> dict[str, int]:
            return served.append(-number)

        @inside.post("/tickets/{number}")
        @mounted.operation()
        async def inner(number: int) -> dict[str, int]:
            return served.append(number)

        served.app.mount("/inside", inside)
        await served.post("/tickets/1")
        others = [
            await served.post("/tickets/2"),
            await served.post("/tickets/1", method="DELETE"),
            await served.post("/inside/tickets/1"),
        ]
        assert served.ledger == [1]
        assert [other.kind for other in others] == ["key-reused"] * 3
        assert (await served.post("/tickets/1")).replayed
        assert (await served.post("/inside/tickets/1", key="another-key-00001")).body == b'{"n":2}'

    run(trial())


def test_routes_without_a_contract_are_left_alone():
    """R2, R3: a key sent to a route that is no operation changes nothing, nor does a key sent with GET."""

    async def trial():
        served = service()

        @served.app.post("/plain")
        async def plain(request: Request) -> dict[str, int]:
            with pytest.raises(LookupError):
                current(request.scope)
            return served.append(await request.body())

        @served.app.get("/work")
        async def read() -> dict[str, int]:
            return served.append("read")

        for _ in range(2):
            await served.post("/plain", parts=[b"a", b"b"])
            await served.post(method="GET")
        assert served.ledger == [b"ab", "read"] * 2
        assert len(served.store) == 0

    run(trial())


def test_a_preflight_never_touches_the_store():
    """G8: an OPTIONS request that carries a key is CORS's; it claims nothing, and a page may read the marker."""

    async def trial():
        served = service()
        served.app.add_middleware(
            CORSMiddleware,
            allow_origins=["https://shop.example"],
            allow_methods=["POST"],
            allow_headers=["Idempotency-Key", "X-User"],
            expose_headers=["Idempotent-Replayed", "Retry-After"],
        )
        origin = (b"origin", b"https://shop.example")
        asked = [origin, (b"access-control-request-method", b"POST"), (b"access-control-request-headers", b"x-user")]
        preflight = await served.post(method="OPTIONS", headers=asked)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert preflight.status == 200
        for _ in range(2):
            reply = await served.post(headers=[origin, (b"content-type", b"application/json")])
        assert served.ledger == [1]
        assert reply.replayed
        assert reply.header(b"access-control-allow-origin") == b"https://shop.example"
        assert b"Idempotent-Replayed" in (reply.header(b"access-control-expose-headers") or b"")

    run(trial())


# --- the endpoint and its dependencies --------------------------------------------------------------------------------


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

        @served.app.post("/work")
        @served.safe.operation()
        async def work(body: Work, repository: Annotated[Repository, Depends()]) -> dict[str, int]:
            return repository.add(body.amount)

        replies = [await served.post() for _ in range(2)]
        assert served.ledger == [1]
        assert sessions == ["open", "commit"] * 2
        assert [reply.replayed for reply in replies] == [False, True]

    run(trial())


def test_background_tasks_run_once():
    """R17, K: tasks of the endpoint and of its dependencies run after the first answer and never after a replay."""

    async def trial():
        served = Service()
        done: list[str] = []

        def audited(tasks: BackgroundTasks) -> None:
            tasks.add_task(done.append, "audit")

        @served.app.post("/work", dependencies=[Depends(audited)])
        @served.safe.operation()
        async def work(tasks: BackgroundTasks) -> dict[str, int]:
            tasks.add_task(done.append, "mail")
            return served.append()

        replies = [await served.post() for _ in range(2)]
        assert served.ledger == [1]
        assert done == ["audit", "mail"]
        assert replies[1].replayed

    run(trial())


def test_a_failing_background_task_changes_nothing():
    """K: a task that raises after the 201 reaches the server's log; the retry gets the 201."""

    async def trial():
        served = Service()

        @served.app.post("/work", status_code=201)
        @served.safe.operation()
        async def work(tasks: BackgroundTasks) -> dict[str, int]:
            def fail() -> None:
                raise RuntimeError("no mail today")

            tasks.add_task(fail)
            return served.append()

        first = await served.post(raises=RuntimeError)
        again = await served.post()
        assert served.ledger == [1]
        assert (first.status, str(first.raised)) == (201, "no mail today")
        assert (again.status, again.replayed) == (201, True)

    run(trial())


def test_endpoints_that_block_run_in_threads():
    """H1: a `def` endpoint works under a key as it does without, in the thread pool, with all its parameters."""

    async def trial():
        served = Service()
        threads = set()

        @served.app.post("/work/{number}")
        @served.safe.operation()
        def work(number: int, body: Work, request: Request, x: str = "-", x_user: Annotated[str, Header()] = ""):
            threads.add(threading.current_thread())
            return served.append((number, body.amount, request.method, x, x_user))

        for _ in range(2):
            reply = await served.post("/work/7", query=b"x=y")
        assert served.ledger == [(7, 1, "POST", "y", "ann")]
        assert threading.current_thread() not in threads
        assert reply.replayed

    run(trial())


class Endpoint:
    """An endpoint that is an object."""

    def __init__(self, served: Service) -> None:
        self.served = served

    async def __call__(self, body: Work) -> dict[str, int]:
        return self.served.append(body.amount)

    async def method(self, body: Work) -> dict[str, int]:
        return self.served.append(body.amount)


@pytest.mark.parametrize("form", ["object", "method", "decorated"])
def test_endpoints_may_be_of_any_form(form):
    """H1: an object, a method and a function under other decorators keep their signature and run once."""

    async def trial():
        served = Service()
        seen = []

        def noted(function):
            @wraps(function)
            async def noting(*args, **values):
                seen.append(sorted(values))
                return await function(*args, **values)

            return noting

        endpoint = Endpoint(served)
        call = {"object": endpoint, "method": endpoint.method, "decorated": noted(endpoint.method)}[form]
        decorated = served.safe.operation()(call)
        served.app.post("/work")(noted(decorated) if form == "decorated" else decorated)
        for _ in range(2):
            reply = await served.post()
        assert served.ledger == [1]
        assert reply.replayed
        if form == "decorated":
            assert ["body"] in seen

    run(trial())


def test_a_handler_may_know_its_request():
    """R25, R15: the request under its key gives keys for calls further on, and takes "nothing was done"."""

    async def trial():
        served = Service()
        derived = []

        @served.app.post("/work")
        @served.safe.operation(effects="keyed")
        async def work(attempt: Annotated[KeyedRequest, Depends(served.safe.current)]) -> dict[str, int]:
            if not attempt.key:
                return {"n": 0}
            derived.append(attempt.derived_key("charge"))
            if len(derived) == 1:
                attempt.nothing_done()
                return {"n": -1}
            return served.append()

        replies = [await served.post() for _ in range(3)]
        assert served.ledger == [1]
        assert [reply.body for reply in replies] == [b'{"n":-1}', b'{"n":1}', b'{"n":1}']
        assert len(derived) == 2
        assert derived[0] == derived[1]
        assert (await served.post(key=None)).body == b'{"n":0}'

    run(trial())


def test_routers_and_prefixes():
    """H1: operations on routers, included under prefixes, nested, before or after Idempotency knows of them."""

    async def trial():
        served = Service()
        outer, inner = APIRouter(prefix="/outer"), APIRouter(prefix="/inner")

        @inner.post("/work")
        @served.safe.operation()
        async def work(body: Work) -> dict[str, int]:
            return served.append(body.amount)

        outer.include_router(inner)
        served.app.include_router(outer, prefix="/v1")
        for _ in range(2):
            reply = await served.post("/v1/outer/inner/work")
        assert served.ledger == [1]
        assert reply.replayed

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

        @served.app.post("/work")
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

        @served.app.post("/work")
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

        for path in ("/work", "/bare"):
            await served.post(path, parts=[b'{"amou', b'nt": '], cut=True)
            assert (served.ledger, len(served.store)) == ([], 0)

    run(trial())


@pytest.mark.parametrize("kind", ["json", "form", "file", "stream"])
def test_the_body_arrives_whole_however_it_is_read(kind):
    """H1: JSON, a form, an uploaded file and a raw stream, sent in three pieces, are what the endpoint reads."""

    async def trial():
        served = Service()

        @served.app.post("/json")
        @served.safe.operation()
        async def take_json(body: Work) -> dict[str, int]:
            return served.append(body.amount)

        @served.app.post("/form")
        @served.safe.operation()
        async def take_form(amount: Annotated[int, Form()]) -> dict[str, int]:
            return served.append(amount)

        @served.app.post("/file")
        @served.safe.operation()
        async def take_file(content: Annotated[bytes, File()]) -> dict[str, int]:
            return served.append(content)

        @served.app.post("/stream")
        @served.safe.operation()
        async def take_stream(request: Request) -> dict[str, int]:
            return served.append(b"".join([piece async for piece in request.stream()]))

        boundary = b'--b\r\ncontent-disposition: form-data; name="content"; filename="f"\r\n\r\nabc\r\n--b--\r\n'
        body, media_type, expected = {
            "json": (b'{"amount": 12}', b"application/json", 12),
            "form": (b"amount=12", b"application/x-www-form-urlencoded", 12),
            "file": (boundary, b"multipart/form-data; boundary=b", b"abc"),
            "stream": (b"abcdef", b"application/octet-stream", b"abcdef"),
        }[kind]
        for _ in range(2):
            reply = await served.post(
                f"/{kind}", headers=[(b"content-type", media_type)], parts=[body[:3], body[3:5], body[5:]]
            )
        assert served.ledger == [expected]
        assert reply.replayed

    run(trial())


def test_behind_the_asgi_middleware_the_outer_one_does_the_work():
    """K: mounted twice, the request is claimed once, by the middleware, and runs once."""

    async def trial():
        served = service(required=True)
        outer = IdempotencyMiddleware(served.app, served.store, scope=lambda scope: "ann")
        for _ in range(2):
            reply = await post(outer, headers=[(b"x-user", b"ann"), (b"content-type", b"application/json")])
        assert served.ledger == [1]
        assert reply.replayed

    run(trial())


def test_after_the_retention_the_key_is_new():
    """R20, C4: the policy's retention holds; past it the same key runs again, with nothing having swept."""

    async def trial():
        served = service(key_retention=timedelta(hours=2), body_retention=timedelta(hours=1))
        await served.post()
        served.now += 90 * 60 * 1_000_000
        gone = await served.post()
        assert served.ledger == [1]
        assert (gone.status, gone.kind) == (201, "result-not-kept")
        served.now += 31 * 60 * 1_000_000
        assert (await served.post()).body == b'{"n":2}'
        assert served.ledger == [1, 1]

    run(trial())


def test_httpx_over_the_application():
    """R11: the same over httpx's own transport, with the key quoted the second time (R4)."""

    async def trial():
        served = service()
        transport = httpx.ASGITransport(served.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers={"x-user": "ann"}) as client:
            first = await client.post("/work", json={"amount": 3}, headers={"Idempotency-Key": K})
            second = await client.post("/work", json={"amount": 3}, headers={"Idempotency-Key": f'"{K}"'})
        assert served.ledger == [3]
        assert first.json() == second.json() == {"n": 1}
        assert second.headers["idempotent-replayed"] == "true"

    run(trial())
