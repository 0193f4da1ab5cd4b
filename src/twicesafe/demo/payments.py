"""The payments service: an endpoint that charges whenever it is asked, and the same one behind twicesafe."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID

import aiosqlite
from aiosqlite import Connection
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from twicesafe.core.record import Instant
from twicesafe.demo.directions import Directions
from twicesafe.demo.faults import Fault
from twicesafe.demo.lanes import Lane
from twicesafe.demo.ledger import INSERT
from twicesafe.demo.shopper import shopper_in
from twicesafe.fastapi import Idempotency
from twicesafe.stores.sqlite import AsyncSqliteStore

PRICES: Final = {"espresso": 2400, "moka": 3600}
"""Cents."""

USUAL: Final = 0.25
SLOW: Final = 5.0
"""Seconds that the provider takes. There is none: the time passes in this process, and no money moves."""


class Order(BaseModel):
    """What the page asks to be paid."""

    cart: UUID
    # Strictly: `false` is no number of cups.
    espresso: Annotated[int, Field(ge=0, le=9, strict=True)]
    moka: Annotated[int, Field(ge=0, le=9, strict=True)]

    @property
    def amount(self) -> int:
        """Cents, by this service's own prices."""
        return self.espresso * PRICES["espresso"] + self.moka * PRICES["moka"]


class Receipt(BaseModel):
    """What a successful charge is answered with."""

    charge: int
    amount: int
    currency: str = "EUR"


class Refusal(BaseModel):
    """What FastAPI says of a request that it does not take."""

    detail: str


REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": Refusal, "description": "The body is no text"},
    401: {"model": Refusal, "description": "Nobody knows who is shopping"},
    429: {"model": Refusal, "description": "The service is busy, and has done nothing"},
    500: {"model": Refusal, "description": "Something failed"},
}
"""Beside those that FastAPI and twicesafe add themselves."""


class Call(NamedTuple):
    """Who is asking, in which request, and what the provider does this time."""

    shopper: str
    request_id: str
    provider: Callable[[], Awaitable[None]]
    busy: bool
    fails: bool


def shopper(cookie: Annotated[str, Header(include_in_schema=False)] = "") -> str:
    """Whoever is shopping, which the server knows from its own cookie."""
    found = shopper_in(cookie)
    if not found:
        raise HTTPException(401, "Load the page first: it says who is shopping.")
    return found


def call(
    request: Request,
    shopper: Annotated[str, Depends(shopper)],
    x_request_id: Annotated[str, Header(max_length=80)],
    demo_fault: Annotated[str, Header(include_in_schema=False)] = "",
) -> Call:
    """What both endpoints want to know beside the order."""
    faults = demo_fault.split()
    if Fault.HOLD in faults:
        provider = partial(request.app.state.directions.hold, x_request_id)
    else:
        provider = partial(asyncio.sleep, SLOW if Fault.SLOW in faults else USUAL)
    return Call(shopper, x_request_id, provider, busy=Fault.BUSY in faults, fails=Fault.FAIL in faults)


async def charge(db: Connection, order: Order, call: Call) -> Receipt:
    """Ask the provider, and write the charge to the ledger."""
    if call.busy:
        raise HTTPException(429, "Come back at once.", {"Retry-After": "0"})
    await call.provider()
    row = (call.shopper, str(order.cart), order.amount, call.request_id, os.getpid())
    (number,) = next(iter(await db.execute_fetchall(INSERT, row)))
    if call.fails:
        raise HTTPException(500, "Something failed after the charge.")
    return Receipt(charge=number, amount=order.amount)


async def refused(_: Request, error: Exception) -> JSONResponse:
    """What is wrong with a request, without the request: not everything that JSON is parsed to can be written again."""
    assert isinstance(error, RequestValidationError)
    found = [{name: one[name] for name in ("type", "loc", "msg")} for one in error.errors()]
    return JSONResponse({"detail": found}, 422)


def service(lane: Lane, **more: Any) -> FastAPI:
    """An application without its endpoint, which says what it answers to whom it refuses."""
    return FastAPI(
        title=f"Payments, {lane}",
        openapi_url=lane.document,
        responses=REFUSALS,
        exception_handlers={RequestValidationError: refused},
        **more,
    )


def naive(file: Path) -> FastAPI:
    """Charges whenever it is asked."""
    app = service(Lane.NAIVE)

    async def connection() -> AsyncIterator[Connection]:
        async with aiosqlite.connect(file, isolation_level=None) as db:
            yield db

    @app.post("/naive/charges", status_code=201)
    async def create_charge(
        order: Order,
        call: Annotated[Call, Depends(call)],
        db: Annotated[Connection, Depends(connection)],
    ) -> Receipt:
        return await charge(db, order, call)

    return app


def safe(file: Path, clock: Callable[[], Instant]) -> FastAPI:
    """Charges once per intent: the charge and the record of its answer are one transaction."""
    store = AsyncSqliteStore(file, clock=clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await store.apply_schema()
        yield
        await store.aclose()

    app = service(Lane.SAFE, lifespan=lifespan)
    idempotency = Idempotency(app, store, scope=shopper)

    @app.post("/safe/charges", status_code=201)
    @idempotency.operation(effects="transactional", required=True)
    async def create_charge(
        order: Order,
        call: Annotated[Call, Depends(call)],
        db: Annotated[Connection, Depends(idempotency.connection)],
    ) -> Receipt:
        return await charge(db, order, call)

    return app


def application(lane: Lane, file: Path, directions: Directions) -> FastAPI:
    """The lane's service."""
    app = naive(file) if lane is Lane.NAIVE else safe(file, directions.clock)
    app.state.directions = directions
    return app
