"""What the probe applications of Starlette and of FastAPI share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from starlette.background import BackgroundTasks
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from tests.behaviour.knobs import EXPIRES, MAPPED, MAY_SEND, ORIGIN, Reply, Seen
from twicesafe.core.problems import CORS_EXPOSE_HEADERS
from twicesafe.stores.sqlite import AsyncSqliteStore

CORS: Final = Middleware(
    CORSMiddleware,
    allow_origins=[ORIGIN],
    allow_methods=["POST"],
    allow_headers=MAY_SEND,
    expose_headers=CORS_EXPOSE_HEADERS,
)


def lifespan_of(store: AsyncSqliteStore) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Tables first."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        await store.apply_schema()
        yield
        await store.aclose()

    return lifespan


async def ready(request: Request) -> Response:
    """It serves."""
    return PlainTextResponse("ready")


async def mapped(request: Request, error: Exception) -> Response:
    """An error of the application's own."""
    return JSONResponse(MAPPED, 409)


async def seen_in(request: Request, user: str) -> Seen:
    """The request as it arrived here."""
    return Seen(request.headers.get("probe"), request.method, request.url.path, user, await request.body())


def response_to(reply: Reply) -> Response:
    """The answer in Starlette's terms."""
    response = (
        StreamingResponse(reply.chunks_async(), reply.status) if reply.stream else Response(reply.body, reply.status)
    )
    response.raw_headers += reply.lines
    for name in reply.cookies:
        response.set_cookie(name, "1", expires=EXPIRES)
    if reply.background:
        tasks = response.background = BackgroundTasks()
        for task in reply.background:
            tasks.add_task(task)
    return response
