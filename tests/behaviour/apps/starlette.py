"""The probe application in Starlette."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.behaviour.knobs import (
    CONTRACTS,
    UNAUTHENTICATED,
    UNKEYED,
    MappedError,
    append_async,
    append_on_async,
    configure,
    database,
    route_of,
    user_of,
    work_async,
)
from tests.behaviour.starlette_parts import CORS, lifespan_of, mapped, ready, response_to, seen_in
from twicesafe import Operation
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.sqlite import AsyncSqliteStore

COMMANDS = {
    "uvicorn": "uvicorn tests.behaviour.apps.starlette:app --host 127.0.0.1 --port {port} --log-level warning",
    "hypercorn": "hypercorn tests.behaviour.apps.starlette:app --bind 127.0.0.1:{port}",
}
NOT_OFFERED = {}

store = AsyncSqliteStore(database(), configure=configure)
OPERATIONS = {path: Operation(path, policy) for path, policy in CONTRACTS.items()}


async def work(request: Request) -> Response:
    """The work of every route."""
    keyed = request.scope.get("twicesafe")
    seen = await seen_in(request, request.scope["user"])
    append: Any = append_async
    if keyed and request.url.path == "/tx/jobs":
        append = partial(append_on_async, keyed.connection)
    return response_to(await work_async(seen, HTTPException, keyed=keyed, append=append))


class Authentication:
    """Knows who is calling, before anything else is done for them."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] != "/ready":
            scope["user"] = user_of(Request(scope).headers.get("authorization"))
            if scope["user"] is None:
                await Response(status_code=401, headers=dict([UNAUTHENTICATED]))(scope, receive, send)
                return
        await self.app(scope, receive, send)


app = Starlette(
    lifespan=lifespan_of(store),
    exception_handlers={MappedError: mapped},
    routes=[
        Route("/ready", ready),
        *[Route(path, work, methods=list(policy.methods)) for path, policy in CONTRACTS.items()],
        Route("/jobs", work, methods=list(UNKEYED)),
        Route("/things/{name}/jobs", work, methods=["POST"]),
    ],
    middleware=[
        CORS,
        Middleware(Authentication),
        Middleware(
            IdempotencyMiddleware,
            store,
            scope=lambda scope: scope["user"],
            operation=lambda scope: OPERATIONS.get(route_of(scope["path"]) or ""),
        ),
    ],
)
