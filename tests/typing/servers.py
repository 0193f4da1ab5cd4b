"""A user's ASGI and FastAPI applications, for mypy --strict."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from aiosqlite import Connection
from fastapi import Depends, FastAPI, Header

from twicesafe import PUBLIC, FormField, JsonMember, Operation, Policy, StoredResponse
from twicesafe.asgi import ASGIApp, ASGIScope, IdempotencyMiddleware, current
from twicesafe.cors import cors_headers
from twicesafe.fastapi import Idempotency, KeyedRequest
from twicesafe.lookup import AsyncKeyLookup
from twicesafe.observe import Event
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore


def caller(scope: ASGIScope) -> str | None:
    """Who is asking; None is refused."""
    user: str | None = scope.get("user")
    return user


def operation(scope: ASGIScope) -> Operation | None:
    """What is asked for; None takes no key."""
    return Operation("charge") if scope["path"] == "/charges" else None


def count(event: Event) -> None:
    """An observer."""
    print(event.name, event.operation, event.key_hint, event.loud)


def wrapped(app: ASGIApp, store: AsyncStore) -> ASGIApp:
    """Every way of saying what and for whom."""
    IdempotencyMiddleware(app, store, scope=PUBLIC, policy=Policy(required=True))
    return IdempotencyMiddleware(
        app, store, scope=caller, operation=operation, observer=count, drain=timedelta(seconds=5)
    )


carried = Policy(fields=(JsonMember("idempotency_key"), FormField("idempotency_key")))
allowed: tuple[str, ...] = cors_headers(carried).allow


def shown(stored: StoredResponse, scope: ASGIScope) -> StoredResponse | None:
    """A duplicate's answer, made anew."""
    return StoredResponse(stored.status, stored.headers, scope["path"].encode()) if stored.body is None else None


rebuilding = Operation("report", Policy(response_limit=1), shown)
became: ASGIApp = AsyncKeyLookup(AsyncMemoryStore(), scope=caller, operation=rebuilding, closes=True)


def key_of(scope: ASGIScope) -> str:
    """What a handler may know of its request."""
    return current(scope).derived_key("provider")


async def current_user(authorization: Annotated[str, Header()]) -> str:
    """The application's own authentication."""
    return authorization


app = FastAPI()
safe = Idempotency(app, AsyncSqliteStore("shop.db"), scope=current_user)
also_safe = Idempotency(FastAPI(), AsyncMemoryStore(), scope=PUBLIC, policy=Policy(), observer=count)


@app.post("/charges")
@safe.operation(effects="transactional", required=True)
async def charge(cents: int, db: Annotated[Connection, Depends(safe.connection)]) -> dict[str, int]:
    """The decorator changes nothing that a type checker sees."""
    await db.execute("INSERT INTO charges (cents) VALUES (?)", (cents,))
    return {"cents": cents}


@app.post("/orders")
@safe.operation(Policy(), name="order", effects="keyed", key_retention=timedelta(hours=12))
async def order(keyed: Annotated[KeyedRequest, Depends(safe.current)]) -> str:
    """A key for a call to another system."""
    keyed.nothing_done()
    return keyed.derived_key("provider")


async def call(db: Connection) -> dict[str, int]:
    """It can still be called as what it is."""
    return await charge(500, db)
