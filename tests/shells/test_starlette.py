"""The ASGI middleware around Starlette: what its routers refuse leaves no record, and nothing else is forgotten."""

from __future__ import annotations

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, Router

from tests.shells.probe import Wire, post
from twicesafe.asgi import PUBLIC, IdempotencyMiddleware
from twicesafe.core.keys import scoped_key
from twicesafe.reached import entered
from twicesafe.stores.memory import AsyncMemoryStore


def run(coroutine):
    return asyncio.run(coroutine)


class Copying:
    """A middleware that works on a copy of the scope, so that nobody outside sees what routers write into it."""

    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        await self.app(dict(scope), receive, send)


class Shop:
    """A Starlette application with routes at the root, mounted in several ways, and by host."""

    def __init__(self, *inner: Middleware) -> None:
        self.ledger: list[str] = []
        self.store = AsyncMemoryStore()
        routes = [Route("/jobs", self.work, methods=["POST"]), Route("/gone", self.gone, methods=["POST"])]
        self.app = Starlette(
            routes=[
                *routes,
                Mount("/routes", routes=routes),
                Mount("/router", app=Router(routes)),
                Mount("/wrapped", app=Router(routes), middleware=[Middleware(Copying)]),
                Mount("/app", app=Starlette(routes=routes)),
                Mount("/copying", app=Starlette(routes=routes, middleware=[Middleware(Copying)])),
                Mount("/raw", app=self.raw),
                Host("other.example", app=Router(routes)),
            ],
            middleware=[Middleware(IdempotencyMiddleware, store=self.store, scope=PUBLIC), *inner],
        )

    async def recorded(self) -> bool:
        """Whether anything is stored under the key that `post` sends."""
        found = await self.store.read(scoped_key(PUBLIC, "k-0001-0001-0001").digest)
        return found.record is not None

    async def work(self, request: Request) -> Response:
        self.ledger.append(request.url.path)
        return JSONResponse({"n": len(self.ledger)}, 201)

    async def gone(self, request: Request) -> Response:
        self.ledger.append(request.url.path)
        raise HTTPException(404, "handled")

    async def raw(self, scope, receive, send) -> None:
        self.ledger.append("raw")
        await PlainTextResponse("nothing here, but done", 404)(scope, receive, send)


PLACES = ["", "/routes", "/router", "/wrapped", "/app", "/copying"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("path", "method", "status"), [("/nowhere", "POST", 404), ("/jobs", "PATCH", 405)])
def test_what_a_router_refuses_leaves_no_record(place, path, method, status):
    """E1, R15: an unknown path and a wrong method, at the root or mounted, are not stored; the key is free."""

    async def trial():
        shop = Shop()
        refused = await post(shop.app, path=place + path, method=method)
        assert (shop.ledger, await shop.recorded()) == ([], False)
        assert refused.status == status
        right = await post(shop.app, path=f"{place}/jobs")
        assert shop.ledger == [f"{place}/jobs"]
        assert (right.status, right.replayed) == (201, False)

    run(trial())


@pytest.mark.parametrize("place", PLACES)
def test_a_404_of_a_handler_is_an_answer(place):
    """R15, E1: a handler that ran and answered 404 is not run again, wherever it is mounted."""

    async def trial():
        shop = Shop()
        first, again = [await post(shop.app, path=f"{place}/gone") for _ in range(2)]
        assert shop.ledger == [f"{place}/gone"]
        assert (first.status, first.body) == (404, b"handled")
        assert (again.status, again.body, again.replayed) == (404, b"handled", True)

    run(trial())


@pytest.mark.parametrize("inner", [[], [Middleware(Copying)]])
def test_where_the_scope_says_nothing_the_answer_is_kept(inner):
    """R15: behind a middleware that copies the scope, and in a raw application, a 404 is stored and not run again."""

    async def trial():
        shop = Shop(*inner)
        for path in ("/gone", "/raw/x"):
            replies = [await post(shop.app, path=path, key=f"a key for {path}") for _ in range(2)]
            assert replies[1].replayed
        assert shop.ledger == ["/gone", "raw"]

    run(trial())


def test_a_redirect_to_the_other_spelling_of_a_path_does_not_use_the_key_up():
    """E1, G2: `/jobs/` leads to `/jobs`, where the same key runs, instead of being a key that was used before."""

    async def trial():
        shop = Shop()
        redirect = await post(shop.app, path="/jobs/")
        assert shop.ledger == []
        assert (redirect.status, redirect.header(b"location")) == (307, b"http://test/jobs")
        assert (await post(shop.app, path="/jobs")).status == 201
        assert shop.ledger == ["/jobs"]

    run(trial())


def test_routes_by_host():
    """E1: an unknown path of a host that has a router of its own is not stored either."""

    async def trial():
        shop = Shop()
        replies = []
        for path in ("/nowhere", "/jobs"):
            wire = Wire(shop.app, path=path)
            wire.scope["headers"][0] = (b"host", b"other.example")
            replies.append(await wire.end())
        assert shop.ledger == ["/jobs"]
        assert [reply.status for reply in replies] == [404, 201]

    run(trial())


class Round:
    """An application that leads to itself."""

    @property
    def app(self):
        return self


@pytest.mark.parametrize(
    "scope", [{}, {"endpoint": print}, {"router": object()}, {"endpoint": Copying(print)}, {"endpoint": Round()}]
)
def test_nothing_is_certain_without_a_router(scope):
    """R15: where no router is in sight, nobody says that the handler was not reached."""
    assert entered({"type": "http", "path": "/jobs", **scope}, 404) is None


def test_only_what_a_router_answers_is_judged():
    """R15: an answer of another status is the handler's, whatever the routes say."""

    async def trial():
        scope = Wire(None, path="/nowhere").scope
        scope["router"] = Router([Route("/jobs", print)])
        assert [entered(scope, status) for status in (404, 405, 307)] == [False] * 3
        assert [entered(scope, status) for status in (200, 201, 400, 401, 500)] == [None] * 5

    run(trial())
