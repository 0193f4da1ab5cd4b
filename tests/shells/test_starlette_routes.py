"""What is Starlette's own about a request: decorators, class endpoints, mounted applications, middlewares."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.authentication import requires
from starlette.background import BackgroundTasks
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.shells.probe import Wire, post
from tests.shells.service import run
from tests.shells.starlette_shop import Nothing, Shop
from twicesafe import PUBLIC
from twicesafe.asgi import IdempotencyMiddleware, current
from twicesafe.starlette import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore


@pytest.mark.parametrize("place", ["", "/routes", "/router", "/app"])
@pytest.mark.parametrize("around", [(), (Middleware(Nothing),)])
def test_a_route_has_its_contract_wherever_it_is_mounted(place, around):
    """G2, H1, K: at the root, mounted, in an application of its own, and under BaseHTTPMiddleware: one effect each."""

    async def trial():
        shop = Shop(*around)
        first, again = [await post(shop.app, path=f"{place}/jobs") for _ in range(2)]
        assert shop.ledger == [f"{place}/jobs"]
        assert (first.status, again.status, again.replayed, again.body) == (201, 201, True, first.body)
        other = await post(shop.app, path=f"{'/app' if place == '/routes' else '/routes'}/jobs")
        assert (other.status, other.kind) == (422, "key-reused")

    run(trial())


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_compression(where):
    """D4: outside, each caller gets what it can read; inside, every caller gets what was sent first."""

    async def trial():
        shop = Shop()
        gzip = Middleware(GZipMiddleware)
        layers = [gzip, shop.safe.middleware] if where == "outside" else [shop.safe.middleware, gzip]
        app = Starlette(routes=shop.routes, middleware=layers)
        first, again = [await post(app, headers=[(b"accept-encoding", b"gzip")]) for _ in range(2)]
        plain = await post(app, headers=[(b"accept-encoding", b"identity")])
        assert shop.ledger == ["/jobs"]
        assert first.body == again.body
        assert first.header(b"content-encoding") == b"gzip"
        assert (b"x" * 2000 in plain.body) is (where == "outside")

    run(trial())


def test_what_checks_the_caller_goes_above():
    """E1, R22: a decorator above the contract refuses before anything is claimed; one of Starlette's answers 403."""

    async def trial():
        shop = Shop()
        checked = requires("authenticated")(shop.work)
        scopes: list[str] = []

        class Authentication:
            def __init__(self, app) -> None:
                self.app = app

            async def __call__(self, scope, receive, send):
                await self.app(scope | {"auth": type("Auth", (), {"scopes": scopes})}, receive, send)

        app = Starlette(
            routes=[Route("/jobs", checked, methods=["POST"])],
            middleware=[shop.safe.middleware, Middleware(Authentication)],
        )
        assert (await post(app)).status == 403
        assert len(shop.store) == 0
        scopes.append("authenticated")
        assert [(await post(app)).status for _ in range(2)] == [201, 201]
        assert shop.ledger == ["/jobs"]

    run(trial())


def test_class_endpoints():
    """R2, R7: methods of an HTTPEndpoint have their own contracts, by names of their own; the others have none."""

    async def trial():
        ledger: list[str] = []
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        class Charges(HTTPEndpoint):
            @safe.operation()
            async def post(self, request):
                ledger.append(f"post {safe.current(request).operation.name}")
                return PlainTextResponse("done", 201)

            @safe.operation()
            def patch(self, request):
                ledger.append(f"patch {safe.current(request).operation.name}")
                return PlainTextResponse("changed")

            async def put(self, request):
                ledger.append("put")
                return PlainTextResponse("put")

        app = Starlette(routes=[Route("/jobs", Charges)], middleware=[safe.middleware])
        for method in ("POST", "PATCH", "PUT"):
            for _ in range(2):
                assert (await post(app, method=method, key=f"key-{method}")).status < 300
        assert ledger == ["post Charges.post", "patch Charges.patch", "put", "put"]
        assert (await post(app, method="DELETE", key="key-DELETE")).status == 405

    run(trial())


def test_one_function_for_several_methods():
    """R2: a function that serves GET as well is let through by GET, with whatever header."""

    async def trial():
        ledger: list[str] = []
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        @safe.operation(required=True)
        async def work(request):
            ledger.append(request.method)
            return PlainTextResponse("done")

        app = Starlette(routes=[Route("/jobs", work, methods=["GET", "POST"])], middleware=[safe.middleware])
        for method in ("GET", "POST"):
            for _ in range(2):
                assert (await post(app, method=method)).status == 200
        assert ledger == ["GET", "GET", "POST"]

    run(trial())


def test_a_handler_is_not_told_of_a_hang_up_that_there_was_not():
    """K, H1: in a handler the client is there, and it stays so for the work's sake when it hangs up."""

    async def trial():
        said: list[bool] = []
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        @safe.operation()
        async def work(request):
            said.append(await request.is_disconnected())
            wire.hang_up()
            said.append(await request.is_disconnected())
            return PlainTextResponse("done")

        app = Starlette(routes=[Route("/jobs", work, methods=["POST"])], middleware=[safe.middleware])
        wire = Wire(app)
        await wire.end()
        assert said == [False, False]
        assert (await post(app)).replayed

    run(trial())


def test_tasks_that_fail_change_nothing():
    """K, R17: a background task that fails after the answer makes no retry run again."""

    async def trial():
        ledger: list[str] = []
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        async def fail() -> None:
            ledger.append("task")
            raise ZeroDivisionError

        @safe.operation()
        async def work(request):
            ledger.append("work")
            tasks = BackgroundTasks()
            tasks.add_task(fail)
            return PlainTextResponse("done", 201, background=tasks)

        app = Starlette(routes=[Route("/jobs", work, methods=["POST"])], middleware=[safe.middleware])
        first = await post(app, raises=ZeroDivisionError)
        again = await post(app)
        assert ledger == ["work", "task"]
        assert (first.status, again.status, again.replayed) == (201, 201, True)

    run(trial())


def test_a_scope_may_wait_and_may_refuse():
    """R6, R22: the caller is found by a coroutine that raises an HTTP error, or says that it is nobody."""

    async def trial():
        async def who(request):
            if request.headers.get("x-user") == "eve":
                raise HTTPException(402)
            return request.headers.get("x-user")

        store = AsyncMemoryStore()
        safe = Idempotency(store, scope=who)

        @safe.operation()
        async def work(request):
            return PlainTextResponse("done")

        app = Starlette(routes=[Route("/jobs", work, methods=["POST"])], middleware=[safe.middleware])
        for lines, status in (([(b"x-user", b"eve")], 402), ([], 403), ([(b"x-user", b"ann")], 200)):
            assert (await post(app, headers=lines)).status == status
        assert len(store) == 1

    run(trial())


def test_an_unhandled_exception_goes_where_it_always_goes():
    """E4, R16: what renders every exception renders it where nothing is stored, and the server sees the exception."""

    async def trial():
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)
        ledger: list[int] = []

        @safe.operation(effects="keyed")
        async def work(request):
            ledger.append(1)
            raise ZeroDivisionError

        async def page(request, error):
            return PlainTextResponse("sorry", 500)

        app = Starlette(
            routes=[Route("/jobs", work, methods=["POST"])],
            middleware=[safe.middleware],
            exception_handlers={Exception: page},
        )
        for _ in range(2):
            reply = await post(app, raises=ZeroDivisionError)
            assert (reply.status, reply.body) == (500, b"sorry")
        assert ledger == [1, 1]

    run(trial())


def test_behind_the_middleware_for_everything_it_leaves_the_work_to_it():
    """H1: where an ASGI middleware of ours stands around, there is one claim, one effect and one marker."""

    async def trial():
        shop = Shop()
        around = IdempotencyMiddleware(shop.app, shop.store, scope=PUBLIC)
        first, again = [await post(around) for _ in range(2)]
        assert shop.ledger == ["/jobs"]
        assert again.lines.count((b"idempotent-replayed", b"true")) == 1
        assert again.body == first.body
        assert len(shop.store) == 1

    run(trial())


def test_the_request_is_known_to_whoever_has_the_scope():
    """R25: `current` of the ASGI module finds the request too, with keys for downstream calls that stay the same."""

    async def trial():
        seen: list[tuple[str, str]] = []
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        @safe.operation(effects="keyed")
        async def work(request):
            keyed = current(request.scope)
            assert keyed is safe.current(request)
            seen.append((keyed.key, keyed.derived_key("provider")))
            return PlainTextResponse("done", 500 if len(seen) == 1 else 201)

        app = Starlette(routes=[Route("/jobs", work, methods=["POST"])], middleware=[safe.middleware])
        await post(app, key="some-key-1")
        await post(app, key="some-key-2")
        assert [key for key, _ in seen] == ["some-key-1", "some-key-2"]
        assert len({derived for _, derived in seen}) == 2

    run(trial())
