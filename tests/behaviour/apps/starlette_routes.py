"""The probe application in Starlette, with a decorator on each endpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from tests.behaviour.knobs import (
    CONTRACTS,
    UNAUTHENTICATED,
    UNKEYED,
    MappedError,
    append_async,
    append_on_async,
    configure,
    database,
    user_of,
    work_async,
)
from tests.behaviour.starlette_parts import CORS, lifespan_of, mapped, ready, response_to, seen_in
from twicesafe.starlette import Idempotency
from twicesafe.stores.sqlite import AsyncSqliteStore

COMMANDS = {
    "uvicorn": "uvicorn tests.behaviour.apps.starlette_routes:app --host 127.0.0.1 --port {port} --log-level warning",
    "hypercorn": "hypercorn tests.behaviour.apps.starlette_routes:app --bind 127.0.0.1:{port}",
    "granian": "granian tests.behaviour.apps.starlette_routes:app --interface asgi --host 127.0.0.1 --port {port}",
}
NOT_OFFERED = {}


class Bearer(AuthenticationBackend):
    """Knows who is calling."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser] | None:
        """Whoever it is, or nobody at all where it is asked whether this serves."""
        if conn.url.path == "/ready":
            return None
        user = user_of(conn.headers.get("authorization"))
        if user is None:
            raise AuthenticationError
        return AuthCredentials(["authenticated"]), SimpleUser(user)


def unauthenticated(conn: HTTPConnection, error: Exception) -> Response:
    """The answer to nobody."""
    return Response(status_code=401, headers=dict([UNAUTHENTICATED]))


def current_user(request: Request) -> str:
    """Who is calling."""
    return str(request.user.display_name)


store = AsyncSqliteStore(database(), configure=configure)
safe = Idempotency(store, scope=current_user)


async def answer(request: Request, **how: Any) -> Response:
    """Do the work and answer."""
    seen = await seen_in(request, current_user(request))
    return response_to(await work_async(seen, HTTPException, **how))


def endpoint(path: str, name: str) -> Callable[..., Any]:
    """The work under the contract of a path."""
    transactional = path == "/tx/jobs"

    @safe.operation(CONTRACTS[path], name=name)
    async def work(request: Request) -> Response:
        append = partial(append_on_async, safe.connection(request)) if transactional else append_async
        return await answer(request, keyed=safe.current(request), append=append)

    return work


class Work(HTTPEndpoint):
    """The work at `/jobs`: one method under a contract, the others under none."""

    @safe.operation(CONTRACTS["/jobs"], name="/jobs")
    async def post(self, request: Request) -> Response:
        """Under a contract."""
        return await answer(request, keyed=safe.current(request))

    @safe.operation(CONTRACTS["/jobs"])
    async def patch(self, request: Request) -> Response:
        """Under another of the same."""
        return await answer(request, keyed=safe.current(request))

    async def get(self, request: Request) -> Response:
        """Under none, as all that follow."""
        return await answer(request)

    put = delete = get


assert {name.upper() for name in vars(Work) if name in ("get", "put", "delete")} == set(UNKEYED)
app = Starlette(
    lifespan=lifespan_of(store),
    exception_handlers={MappedError: mapped},
    routes=[
        Route("/ready", ready),
        Route("/jobs", Work),
        *[
            Route(path, endpoint(path, path), methods=sorted(policy.methods))
            for path, policy in CONTRACTS.items()
            if path != "/jobs"
        ],
        Mount("/things", routes=[Route("/{name}/jobs", endpoint("/jobs", "things"), methods=["POST"])]),
    ],
    middleware=[
        CORS,
        Middleware(AuthenticationMiddleware, backend=Bearer(), on_error=unauthenticated),
        safe.middleware,
    ],
)
