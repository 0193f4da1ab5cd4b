"""The probe application in Litestar: a plugin, and a decorator on each handler."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from litestar import Litestar, Request, Response, get, route
from litestar.background_tasks import BackgroundTask, BackgroundTasks
from litestar.config.cors import CORSConfig
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult, DefineMiddleware
from litestar.response import Stream
from litestar.types import ASGIApp

from tests.behaviour.knobs import (
    CONTRACTS,
    EXPIRES,
    MAPPED,
    MAY_SEND,
    ORIGIN,
    UNAUTHENTICATED,
    UNKEYED,
    MappedError,
    Reply,
    Seen,
    append_async,
    append_on_async,
    configure,
    database,
    user_of,
    work_async,
)
from twicesafe.core.problems import CORS_EXPOSE_HEADERS
from twicesafe.litestar import Idempotency, KeyedRequest
from twicesafe.stores.sqlite import AsyncSqliteStore

COMMANDS = {
    "uvicorn": "uvicorn tests.behaviour.apps.litestar:app --host 127.0.0.1 --port {port} --log-level warning",
    "granian": "granian tests.behaviour.apps.litestar:app --interface asgi --host 127.0.0.1 --port {port}",
    "hypercorn": "hypercorn tests.behaviour.apps.litestar:app --bind 127.0.0.1:{port}",
}
NOT_OFFERED = {}

store = AsyncSqliteStore(database(), configure=configure)
safe = Idempotency(store, scope=lambda request: request.user)


class Bearer(AbstractAuthenticationMiddleware):
    """Knows who is calling."""

    async def authenticate_request(self, connection: ASGIConnection) -> AuthenticationResult:
        """Whoever it is."""
        user = user_of(connection.headers.get("authorization"))
        if user is None:
            raise NotAuthorizedException(headers=dict([UNAUTHENTICATED]))
        return AuthenticationResult(user=user, auth=None)


def http_error(status: int) -> HTTPException:
    """Litestar's own HTTP error."""
    return HTTPException("told to", status_code=status)


async def answer(request: Request, **how: Any) -> ASGIApp:
    """Do the work and answer."""
    seen = Seen(request.headers.get("probe"), request.method, request.scope["path"], request.user, await request.body())
    return response_to(await work_async(seen, http_error, **how), request)


def response_to(reply: Reply, request: Request) -> ASGIApp:
    """The answer in Litestar's terms."""
    kind = next(line.decode() for name, line in reply.lines if name.lower() == b"content-type")
    response: Response = (
        Stream(reply.chunks_async(), status_code=reply.status, headers={"content-type": kind})
        if reply.stream
        else Response(reply.body, status_code=reply.status, headers={"content-type": kind})
    )
    for name in reply.cookies:
        response.set_cookie(name, "1", expires=int((EXPIRES - datetime.now(UTC)).total_seconds()))
    if reply.background:
        response.background = BackgroundTasks([BackgroundTask(task) for task in reply.background])
    asgi = response.to_asgi_response(None, request)
    for name, line in reply.lines:
        if name.lower() != b"content-type":
            asgi.headers.add(name.decode("latin-1"), line.decode("latin-1"))
    return asgi


def handler(path: str, at: str, name: str) -> Any:
    """The work at a path, under the contract of another."""
    policy = CONTRACTS[path]
    methods = sorted(policy.methods) if path == at else ["POST"]

    if path == "/tx/jobs":

        @route(at, http_method=methods, status_code=201)
        @safe.operation(policy, name=name)
        async def work(request: Request, connection: Any, keyed_request: KeyedRequest) -> ASGIApp:
            return await answer(request, keyed=keyed_request, append=partial(append_on_async, connection))

    else:

        @route(at, http_method=methods, status_code=201)
        @safe.operation(policy, name=name)
        async def work(request: Request, keyed_request: KeyedRequest) -> ASGIApp:
            return await answer(request, keyed=keyed_request, append=append_async)

    return work


@route("/jobs", http_method=list(UNKEYED), status_code=200)
async def unkeyed(request: Request) -> ASGIApp:
    """The work under none."""
    return await answer(request)


@get("/ready")
async def ready() -> str:
    """It serves."""
    return "ready"


def mapped(request: Request, error: MappedError) -> Response:
    """An error of the application's own."""
    return Response(MAPPED, status_code=409)


handlers: list[Callable[..., Any]] = [handler(path, path, path) for path in CONTRACTS]
app = Litestar(
    [ready, unkeyed, *handlers, handler("/jobs", "/things/{name:str}/jobs", "things")],
    on_startup=[store.apply_schema],
    on_shutdown=[store.aclose],
    exception_handlers={MappedError: mapped},
    middleware=[DefineMiddleware(Bearer, exclude=["^/ready$"])],
    cors_config=CORSConfig(
        allow_origins=[ORIGIN],
        allow_methods=["POST"],
        allow_headers=MAY_SEND,
        expose_headers=list(CORS_EXPOSE_HEADERS),
    ),
    plugins=[safe],
    request_max_body_size=None,
)
