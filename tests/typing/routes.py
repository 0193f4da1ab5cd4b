"""A user's Starlette, Quart and Litestar applications, for mypy --strict."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import litestar
import quart
from aiosqlite import Connection
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twicesafe import PUBLIC, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.litestar import Idempotency as LitestarIdempotency
from twicesafe.observe import Event
from twicesafe.quart import Idempotency as QuartIdempotency
from twicesafe.starlette import Idempotency as StarletteIdempotency
from twicesafe.starlette import KeyedRequest
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore

store = AsyncSqliteStore("shop.db")


def count(event: Event) -> None:
    """An observer."""
    print(event.name)


# --- Starlette -------------------------------------------------------------------------------------------------------


async def user(request: Request) -> str | None:
    """Who is asking; None is refused."""
    return request.headers.get("x-user")


def anew(stored: StoredResponse, request: Request) -> Response | None:
    """Makes an answer anew."""
    return JSONResponse({"path": request.url.path}, stored.status)


starlette_safe = StarletteIdempotency(store, scope=user, policy=Policy(), observer=count, drain=timedelta(seconds=5))


@starlette_safe.operation(effects="transactional", required=True, rebuild=anew)
async def charge(request: Request) -> Response:
    """An endpoint keeps its type."""
    connection: Connection = starlette_safe.connection(request)
    keyed: KeyedRequest = starlette_safe.current(request)
    await connection.execute("INSERT INTO charges DEFAULT VALUES")
    return JSONResponse({"key": keyed.key})


app = Starlette(routes=[Route("/charges", charge, methods=["POST"])], middleware=[starlette_safe.middleware])


async def called(request: Request) -> Response:
    """What is decorated can be called as what it was."""
    return await charge(request)


# --- Quart -----------------------------------------------------------------------------------------------------------

quart_app = quart.Quart("shop")
quart_safe = QuartIdempotency(quart_app, store, scope=lambda: quart.g.user)
also_safe = QuartIdempotency(store=AsyncMemoryStore(), scope=PUBLIC)
also_safe.init_app(quart_app)


@quart_app.post("/charges")
@quart_safe.operation(Policy(required=True), name="charge", rebuild=lambda stored: {"status": stored.status})
async def create_charge() -> dict[str, str]:
    """A view keeps its type."""
    return {"key": quart_safe.current.derived_key("provider")}


# --- Litestar --------------------------------------------------------------------------------------------------------


@dataclass
class Charge:
    """A body."""

    cents: int


async def anew_too(
    stored: StoredResponse, request: litestar.Request[str, str, litestar.datastructures.State]
) -> Charge:
    """Makes an answer anew."""
    return Charge(stored.status + len(request.url.path))


litestar_safe = LitestarIdempotency(store, scope=lambda request: str(request.user), connection_name="db")


@litestar.post("/charges")
@litestar_safe.operation(effects="transactional", rebuild=anew_too)
async def post_charge(data: Charge, db: Connection, keyed_request: KeyedRequest) -> Charge:
    """A handler keeps its type."""
    await db.execute("INSERT INTO charges VALUES (?, ?)", (keyed_request.key, data.cents))
    return data


litestar_app = litestar.Litestar([post_charge], plugins=[litestar_safe], on_startup=[store.apply_schema])
