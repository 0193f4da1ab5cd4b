"""Clients that make a key of their own for each attempt: two attempts would be two charges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import aiohttp
import httpx2
import niquests
import pytest
import requests

from tests.client.bindings import QUICK, Hours
from tests.client.scripted import answer, serving
from twicesafe.client import Budgets, Intent, report_of
from twicesafe.client import aiohttp as by_aiohttp
from twicesafe.client import httpx as by_httpx
from twicesafe.client import requests as by_requests
from twicesafe.errors import ConfigurationError

HEADER = "Idempotency-Key"


def intent(origin: str) -> Intent:
    return Intent.new("POST", origin, json={"amount": 100}, key="k-1")


def how() -> dict[str, Any]:
    return {"policy": QUICK, "budgets": Budgets(), "ambient": Hours().ambient}


def ahow() -> dict[str, Any]:
    return {"policy": QUICK, "budgets": Budgets(), "ambient": Hours().async_ambient}


def sign(request: Any) -> None:
    request.headers[HEADER] = str(uuid4())


class Signing(httpx2.Auth):
    """Authentication that signs a key of its own."""

    def auth_flow(self, request: Any) -> Any:
        sign(request)
        yield request


def httpx_hook(origin: str) -> Any:
    with httpx2.Client(event_hooks={"request": [sign]}) as client:
        return by_httpx.send(client, intent(origin), **how())


def httpx_authentication(origin: str) -> Any:
    async def main() -> Any:
        async with httpx2.AsyncClient(auth=Signing()) as client:
            return await by_httpx.asend(client, intent(origin), **ahow())

    return asyncio.run(main())


def adapter_of(library: Any) -> Any:
    class Adapter(library.adapters.HTTPAdapter):  # type: ignore[misc]  # it is Any on purpose
        def add_headers(self, request: Any, **_: Any) -> None:
            sign(request)

    return Adapter()


def requests_adapter(origin: str) -> Any:
    with requests.Session() as session:
        session.mount("http://", adapter_of(requests))
        return by_requests.send(session, intent(origin), **how())


def under_niquests(origin: str) -> Any:
    with niquests.Session() as session:
        session.mount("http://", by_requests.RetryAdapter(adapter_of(niquests), **how()))
        return session.post(origin, json={"amount": 100}, headers={HEADER: "k-1"})


async def middleware(request: Any, handler: Any) -> Any:
    sign(request)
    return await handler(request)


def aiohttp_middleware(origin: str) -> Any:
    async def main() -> Any:
        async with aiohttp.ClientSession(middlewares=[middleware]) as session:
            return await by_aiohttp.asend(session, intent(origin), **ahow())

    return asyncio.run(main())


def within_aiohttp(origin: str) -> Any:
    async def main() -> Any:
        above = by_aiohttp.RetryMiddleware(**ahow())
        async with aiohttp.ClientSession(middlewares=[above, middleware]) as session:
            return await session.post(origin, json={"amount": 100}, headers={HEADER: "k-1"})

    return asyncio.run(main())


WAYS = [httpx_hook, httpx_authentication, requests_adapter, under_niquests, aiohttp_middleware, within_aiohttp]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_key_that_the_client_makes_anew_leaves_in_no_attempt(way: Callable[[str], Any]) -> None:
    """I8, I2: nothing is sent under a key that each attempt would make anew, and whoever asked is told so."""
    with serving() as server:
        with pytest.raises(ConfigurationError, match="another key") as caught:
            way(server.origin)
        assert server.hits == []
    report = report_of(caught.value)
    assert report is not None and report.key == "k-1"


def test_a_client_that_repeats_the_key_is_no_matter() -> None:
    """I8: what puts the same key there again changes nothing."""

    def again(request: Any) -> None:
        request.headers[HEADER] = "k-1"

    with serving(answer(201)) as server, httpx2.Client(event_hooks={"request": [again]}) as client:
        outcome = by_httpx.send(client, intent(server.origin), **how())
        assert [hit.key for hit in server.hits] == ["k-1"]
        assert outcome.raise_for_outcome().status_code == 201
