"""A shop that one of several packages makes idempotent, set up as the package's own documentation has it.

`PEER=idemkit uvicorn shop:app`. Packages that keep records in Redis find it at REDIS_URL.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Response
from pydantic import BaseModel


class Order(BaseModel):
    """What is ordered, and what is to go wrong with it."""

    ref: str
    amount: int
    seconds: float = 0.0
    """How long the work takes."""
    fails: int = 0
    """A status that the first attempt is answered with, before anything is done."""


orders: list[str] = []
failed: set[str] = set()
app = FastAPI()


async def account(authorization: Annotated[str, Header()] = "", x_account: Annotated[str, Header()] = "") -> str:
    """Who is calling."""
    if not x_account or authorization != f"Bearer {x_account}-secret":
        raise HTTPException(401)
    return x_account


@app.get("/effects")
async def effects(ref: str) -> dict[str, int]:
    """How often an order was placed."""
    return {"count": orders.count(ref)}


async def place(order: Order, response: Response, _: Annotated[str, Depends(account)]) -> dict[str, int | str]:
    """Place an order."""
    await asyncio.sleep(order.seconds)
    if order.amount < 1:
        raise HTTPException(422, "the amount has to be at least 1")
    if order.fails and order.ref not in failed:
        failed.add(order.ref)
        raise HTTPException(order.fails, "come back later", {"Retry-After": "0"})
    orders.append(order.ref)
    response.headers["Location"] = f"/orders/{len(orders)}"
    response.headers.append("Link", "</terms>; rel=terms")
    response.headers.append("Link", "</shop>; rel=up")
    return {"number": len(orders), "ref": order.ref}


def asgi_idempotency_header() -> None:
    """README, "Setup"."""
    from idempotency_header_middleware import IdempotencyHeaderMiddleware
    from idempotency_header_middleware.backends import RedisBackend
    from redis.asyncio import from_url

    app.add_middleware(IdempotencyHeaderMiddleware, backend=RedisBackend(redis=from_url(os.environ["REDIS_URL"])))


def fastapi_idempotency() -> None:
    """README, its first example and "Identifying the caller"."""
    from fastapi_idempotency import IdempotencyMiddleware

    app.add_middleware(IdempotencyMiddleware, scope=lambda request: request.headers.get("x-account", ""))


def fastapi_idempotency_key() -> None:
    """README, "Global ASGI Middleware" and "SQLiteBackend"."""
    from fastapi_idempotency_key import IdempotencyMiddleware, SQLiteBackend

    app.add_middleware(IdempotencyMiddleware, backend=SQLiteBackend(database_path=os.environ["SQLITE_FILE"]))


def idemkit() -> None:
    """README, "For production, swap the backend and add scope"."""
    from idemkit import HttpConfig, IdempotencyMiddleware, RedisBackend

    app.add_middleware(
        IdempotencyMiddleware,
        backend=RedisBackend.from_url(os.environ["REDIS_URL"]),
        config=HttpConfig(scope=lambda request: request.headers.get("x-account", "anonymous")),
    )


SETUPS: dict[str, Callable[[], None]] = {
    "asgi-idempotency-header": asgi_idempotency_header,
    "fastapi-idempotency": fastapi_idempotency,
    "fastapi-idempotency-key": fastapi_idempotency_key,
    "idemkit": idemkit,
}

if (peer := os.environ["PEER"]) == "twicesafe":
    from contextlib import asynccontextmanager

    from twicesafe.fastapi import Idempotency
    from twicesafe.stores.sqlite import AsyncSqliteStore

    store = AsyncSqliteStore(os.environ["SQLITE_FILE"])

    @asynccontextmanager
    async def lifespan(_: FastAPI):
        """The README's."""
        await store.apply_schema()
        yield
        await store.aclose()

    app.router.lifespan_context = lifespan
    safe = Idempotency(app, store, scope=account)
    place = safe.operation(required=True)(place)
else:
    SETUPS[peer]()
app.post("/orders", status_code=201)(place)
