"""Calls from within request handlers: by an operation of several steps, and by a handler whose effects are keyed."""

import asyncio
from typing import Annotated, Any

import flask
import httpx2
import pytest
from fastapi import Depends, FastAPI, Response

from tests.client.bindings import NO_TLS
from tests.client.calling import CHARGE, Shop, Vendor, id_of
from tests.client.scripted import Act, serving
from twicesafe import PUBLIC
from twicesafe.client.calls import AsyncCallTransport, CallTransport, calling
from twicesafe.errors import CallRefusedError, UnknownError
from twicesafe.fastapi import Idempotency, KeyedRequest
from twicesafe.flask import Idempotency as FlaskIdempotency
from twicesafe.once import AsyncOnce, Once, current
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore

HEADERS = {"Idempotency-Key": "8e03978e-40d5-43e8-bc93-6894a57f9324"}


def stripe() -> Vendor:
    """A provider."""
    return Vendor("stripe-v1")


def asked_twice(app: Any, path: str = "/buy") -> list[int]:
    """The statuses of two attempts at one intent."""

    async def main() -> list[int]:
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
            return [(await client.post(path, headers=HEADERS)).status_code for _ in range(2)]

    return asyncio.run(main())


def bound_async(vendor: Vendor, origin: str) -> httpx2.AsyncClient:
    """A client of the provider's."""
    transport = AsyncCallTransport(httpx2.AsyncHTTPTransport(verify=NO_TLS), vendor.provider)
    return httpx2.AsyncClient(transport=transport, base_url=origin)


def test_a_keyed_handler_calls_under_a_derived_key() -> None:
    """R13, R25, A7: the answer is lost, the handler says that it may be run again: the same key, one charge."""
    vendor = stripe()
    app = FastAPI()
    safe = Idempotency(app, AsyncMemoryStore(), scope=PUBLIC)
    keys = []

    @app.post("/buy")
    @safe.operation(effects="keyed")
    async def buy(keyed: Annotated[KeyedRequest, Depends(safe.current)], response: Response) -> str:
        async with bound_async(vendor, server.origin) as client:
            try:
                with calling(keyed, "charge", to=vendor.provider) as key:
                    keys.append(key)
                    return id_of(await client.request(**CHARGE))
            except httpx2.TransportError:
                response.status_code = 503
                return "later"

    acts: tuple[Act, ...] = (vendor.charge_and_lose, vendor.charge)
    with serving(*acts) as server:
        assert asked_twice(app) == [503, 200]
    assert len(vendor.charges) == 1
    assert [hit.key for hit in server.hits] == keys
    assert len(set(keys)) == 1


def test_a_handler_without_a_call_sends_nothing() -> None:
    """R25, R33: a charge that somebody forgot to name would have no key of its own: it is refused, and none is made."""
    vendor = stripe()
    app = FastAPI()
    safe = Idempotency(app, AsyncMemoryStore(), scope=PUBLIC)
    met = []

    @app.post("/buy")
    @safe.operation(effects="keyed")
    async def buy() -> None:
        async with bound_async(vendor, server.origin) as client:
            try:
                await client.request(**CHARGE)
            except CallRefusedError as error:
                met.append(error)
                raise

    with serving() as server:
        assert asked_twice(app) == [500, 500]
    assert (vendor.charges, server.hits) == ({}, [])
    assert len(met) == 2


def test_an_operation_of_steps_runs_in_a_handler() -> None:
    """R24, R25: a handler may run one: the attempt that lost its answer is gone on with by the next request."""
    vendor, shop = stripe(), Shop()
    app = FastAPI()

    @app.post("/buy")
    async def handle(response: Response) -> str:
        async with bound_async(vendor, server.origin) as client:

            async def charge(key: str) -> str:
                return id_of(await client.request(**CHARGE))

            async def work() -> str:
                return await current().call("charge", charge, to=vendor.provider)

            once = AsyncOnce(AsyncMemoryStore(shop.records), scope="shop", observer=lambda event: None)
            buy = once.operation(key=lambda: "order-1", name="buy", effects="resumable")(work)
            try:
                return await buy()
            except httpx2.TransportError:
                shop.later()
                response.status_code = 503
                return "later"

    with serving(vendor.charge_and_lose, vendor.charge) as server:
        assert asked_twice(app) == [503, 200]
    assert len(vendor.charges) == 1
    assert len({hit.key for hit in server.hits}) == 1


def test_an_answer_does_not_hide_that_it_is_unknown() -> None:
    """I6: a handler that swallows a lost answer does not get to answer: it fails, loudly."""
    vendor = stripe()
    once = Once(MemoryStore(), scope="shop", observer=lambda event: None)

    @once.operation(key=lambda: "order-1", name="buy", effects="keyed")
    def buy() -> str:
        transport = CallTransport(httpx2.HTTPTransport(verify=NO_TLS), vendor.provider)
        with httpx2.Client(transport=transport, base_url=server.origin) as client, calling(current(), "charge"):
            try:
                return id_of(client.request(**CHARGE))
            except httpx2.TransportError:
                return "failed"

    with serving(vendor.charge_and_lose, vendor.charge) as server:
        with pytest.raises(UnknownError, match="'charge' may have been carried out"):
            buy()
        assert len(vendor.charges) == 1
        assert buy() == "ch_1"
    assert len(vendor.charges) == 1


def test_handlers_that_block_do_the_same() -> None:
    """R25, R13: in Flask, by a keyed handler and by an operation in it: one charge each, under keys of their own."""
    vendor, shop = stripe(), Shop()
    app = flask.Flask(__name__)
    safe = FlaskIdempotency(app, MemoryStore(), scope=PUBLIC)

    def client() -> httpx2.Client:
        transport = CallTransport(httpx2.HTTPTransport(verify=NO_TLS), vendor.provider)
        return httpx2.Client(transport=transport, base_url=server.origin)

    @app.post("/keyed")
    @safe.operation(effects="keyed")
    def keyed() -> Any:
        try:
            with client() as bound, calling(safe.current, "charge"):
                return id_of(bound.request(**CHARGE))
        except httpx2.TransportError:
            return "later", 503

    @app.post("/steps")
    def steps() -> Any:
        once = Once(shop.records, scope="shop", observer=lambda event: None)
        with client() as bound:

            def charge(key: str) -> str:
                return id_of(bound.request(**CHARGE))

            @once.operation(key=lambda: "order-1", name="buy", effects="resumable")
            def buy() -> str:
                return current().call("charge", charge, to=vendor.provider)

            try:
                return buy()
            except httpx2.TransportError:
                shop.later()
                return "later", 503

    with serving(*[vendor.charge_and_lose, vendor.charge] * 2) as server:
        asked = app.test_client()
        for path in ("/keyed", "/steps"):
            assert [asked.post(path, headers=HEADERS).status_code for _ in range(2)] == [503, 200]
    assert len(vendor.charges) == 2
    assert len(server.hits) == 4
