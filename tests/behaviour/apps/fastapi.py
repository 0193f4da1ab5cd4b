"""The probe application in FastAPI: a decorator on each route."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response

from tests.behaviour.knobs import (
    CONTRACTS,
    UNAUTHENTICATED,
    UNKEYED,
    MappedError,
    append_on_async,
    configure,
    database,
    user_of,
    work_async,
)
from tests.behaviour.starlette_parts import CORS, lifespan_of, mapped, ready, response_to, seen_in
from twicesafe.fastapi import Idempotency
from twicesafe.stores.sqlite import AsyncSqliteStore

COMMANDS = {
    "uvicorn": "uvicorn tests.behaviour.apps.fastapi:app --host 127.0.0.1 --port {port} --log-level warning",
    "granian": "granian tests.behaviour.apps.fastapi:app --interface asgi --host 127.0.0.1 --port {port}",
}
NOT_OFFERED = {}


async def current_user(authorization: Annotated[str | None, Header()] = None) -> str:
    """Who is calling."""
    user = user_of(authorization)
    if user is None:
        raise HTTPException(401, headers=dict([UNAUTHENTICATED]))
    return user


store = AsyncSqliteStore(database(), configure=configure)
app = FastAPI(lifespan=lifespan_of(store), exception_handlers={MappedError: mapped})
app.add_route("/ready", ready)
safe = Idempotency(app, store, scope=current_user)
app.add_middleware(CORS.cls, *CORS.args, **CORS.kwargs)
User = Annotated[str, Depends(current_user)]


async def plain(request: Request, user: User, keyed: Annotated[Any, Depends(safe.current)]) -> Response:
    """Work whose effects are its own."""
    return response_to(await work_async(await seen_in(request, user), HTTPException, keyed=keyed))


async def unkeyed(request: Request, user: User) -> Response:
    """Work under no contract."""
    return response_to(await work_async(await seen_in(request, user), HTTPException))


async def transactional(
    request: Request,
    user: User,
    keyed: Annotated[Any, Depends(safe.current)],
    connection: Annotated[Any, Depends(safe.connection)],
) -> Response:
    """Work whose effects are in the store's transaction."""

    async def append(row: Any) -> int:
        return await append_on_async(connection, row)

    return response_to(await work_async(await seen_in(request, user), HTTPException, keyed=keyed, append=append))


for path, policy in CONTRACTS.items():
    endpoint = transactional if path == "/tx/jobs" else plain
    app.add_api_route(
        path, safe.operation(policy, name=path)(endpoint), methods=sorted(policy.methods), response_model=None
    )
app.add_api_route(
    "/things/{name}/jobs",
    safe.operation(CONTRACTS["/jobs"], name="things")(plain),
    methods=["POST"],
    response_model=None,
)
app.add_api_route("/jobs", unkeyed, methods=list(UNKEYED), response_model=None)
