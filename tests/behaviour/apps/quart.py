"""The probe application in Quart: a decorator on each view."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from quart import Blueprint, Quart, Response, g, request
from quart_cors import cors
from werkzeug.exceptions import HTTPException

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
from twicesafe.quart import Idempotency
from twicesafe.stores.sqlite import AsyncSqliteStore

COMMANDS = {
    "hypercorn": "hypercorn tests.behaviour.apps.quart:app --bind 127.0.0.1:{port}",
    "uvicorn": "uvicorn tests.behaviour.apps.quart:app --host 127.0.0.1 --port {port} --log-level warning",
}
NOT_OFFERED = {}

app = cors(
    Quart(__name__),
    allow_origin=[ORIGIN],
    allow_methods=["POST"],
    allow_headers=MAY_SEND,
    expose_headers=CORS_EXPOSE_HEADERS,
)
store = AsyncSqliteStore(database(), configure=configure)
safe = Idempotency(app, store, scope=lambda: g.user)
things = Blueprint("things", __name__, url_prefix="/things")


@app.before_serving
async def prepare() -> None:
    """Tables first."""
    await store.apply_schema()


@app.after_serving
async def close() -> None:
    """Connections last."""
    await store.aclose()


@app.before_request
async def authenticate() -> Response | None:
    """Who is calling."""
    if request.path == "/ready" or request.method == "OPTIONS":
        return None
    g.user = user_of(request.headers.get("Authorization"))
    return Response(b"", 401, dict([UNAUTHENTICATED])) if g.user is None else None


@app.errorhandler(MappedError)
async def mapped(error: Exception) -> tuple[dict[str, str], int]:
    """An error of the application's own."""
    return MAPPED, 409


def http_error(status: int) -> HTTPException:
    """Quart's own HTTP error."""
    error = HTTPException()
    error.code = status
    return error


async def answer(**how: Any) -> Response:
    """Do the work and answer."""
    seen = Seen(request.headers.get("Probe"), request.method, request.path, g.user, await request.get_data())
    return response_to(await work_async(seen, http_error, **how))


def response_to(reply: Reply) -> Response:
    """The answer in Quart's terms."""
    response = Response(reply.chunks_async() if reply.stream else reply.body, reply.status)
    del response.headers["content-type"]
    if reply.status == 204:
        # Quart gives every body its length.
        del response.headers["content-length"]
    for name, line in reply.lines:
        response.headers.add(name.decode("latin-1"), line.decode("latin-1"))
    for name in reply.cookies:
        response.set_cookie(name, "1", expires=EXPIRES)
    for task in reply.background:
        app.add_background_task(task)
    return response


def view(path: str, name: str) -> Callable[..., Any]:
    """The work under the contract of a path."""
    transactional = path == "/tx/jobs"

    @safe.operation(CONTRACTS[path], name=name)
    async def work(**_: str) -> Response:
        append = partial(append_on_async, safe.connection) if transactional else append_async
        return await answer(keyed=safe.current, append=append)

    return work


async def unkeyed() -> Response:
    """The work under none."""
    return await answer()


@app.get("/ready")
async def ready() -> str:
    """It serves."""
    return "ready"


for path, policy in CONTRACTS.items():
    app.add_url_rule(path, path, view(path, path), methods=sorted(policy.methods))
app.add_url_rule("/jobs", "unkeyed", unkeyed, methods=list(UNKEYED))
things.add_url_rule("/<name>/jobs", "work", view("/jobs", "things"), methods=["POST"])
app.register_blueprint(things)
