"""The dashboard and the shells of the other frameworks show nobody what was planted."""

from __future__ import annotations

import asyncio
import html
import io
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import falcon
import httpx2
import pytest
from django.http import HttpRequest, HttpResponse
from litestar import Litestar, post
from litestar import Request as LitestarRequest
from quart import Quart
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.dashboard.place import place
from tests.dashboard.visitor import Caller
from tests.shells import django_site
from tests.shells.test_django_transactions import route
from tests.telemetry.searched import ANSWER, BODY, KEY, PASSWORD, Caused, Searched, planted
from twicesafe.django import idempotent
from twicesafe.falcon import Idempotency as OfFalcon
from twicesafe.litestar import Idempotency as OfLitestar
from twicesafe.outbox import Outbox
from twicesafe.quart import Idempotency as OfQuart
from twicesafe.starlette import Idempotency as OfStarlette
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore


def test_the_dashboard(searched: Searched, tmp_path: Path) -> None:
    """R22, R26: every page, of records that are done and unknown, of messages, and of what could not be found."""
    with place(tmp_path) as shop:
        for body in (BODY, BODY, BODY + "2"):
            shop.charge(KEY, body.encode())
        shop.unknown(KEY + "-2")
        with shop.store.transaction() as transaction:
            transaction.begin()
            outbox = Outbox("/shop")
            outbox.add(transaction.connection, "order.placed", ("order", "o-1"), {"card": BODY}, headers={"l": BODY})
            transaction.commit()
        visitor = Caller(shop.url)
        for name, password in (("ann", PASSWORD), (PASSWORD, "x")):
            assert visitor.sign_in(name, password) >= 400
            searched.saw("the door", visitor.last.decode())
        assert visitor.sign_in() < 400
        seen, left = set(), ["/", "/?window=day", "/records", "/messages?state=pending", "/records/" + "0" * 64]
        while left:
            path = left.pop()
            if path in seen or len(seen) > 40:
                continue
            seen.add(path)
            _, headers, page = visitor.get(path)
            searched.saw(f"the dashboard's {path}", f"{headers} {html.unescape(page)}")
            links = re.findall(r'href="/dashboard(/(?:records|messages)/[^"?#]+)"', page)
            left += [link for link in links if link not in seen]
        assert len([path for path in seen if path.startswith("/records/")]) >= 2
        assert any(path.startswith("/messages/") for path in seen)


ASKED = [
    (KEY, BODY),
    (KEY, BODY),
    (KEY, BODY + "2"),
    (KEY * 9, BODY),
    ("", BODY),
    (KEY + "-2", "fails"),
    (KEY + "-2", "fails"),
]


def starlette(searched: Searched) -> Any:
    safe = OfStarlette(AsyncMemoryStore(), scope=lambda request: "ada", observer=searched)

    @safe.operation(effects="keyed", required=True)
    async def charge(request: Request) -> PlainTextResponse:
        return PlainTextResponse(_answered(await request.body()))

    return Starlette(routes=[Route("/charges", charge, methods=["POST"])], middleware=[safe.middleware])


def quart(searched: Searched) -> Any:
    app = Quart("shop")
    safe = OfQuart(app, AsyncMemoryStore(), scope=lambda: "ada", observer=searched)

    @app.post("/charges")
    @safe.operation(effects="keyed", required=True)
    async def charge() -> str:
        from quart import request

        return _answered(await request.get_data())

    return app


def litestar(searched: Searched) -> Any:
    safe = OfLitestar(AsyncMemoryStore(), scope=lambda request: "ada", observer=searched)

    @post("/charges", media_type="text/plain")
    @safe.operation(effects="keyed", required=True)
    async def charge(request: LitestarRequest) -> str:
        return _answered(await request.body())

    return Litestar([charge], plugins=[safe], openapi_config=None, logging_config=None)


def _answered(body: bytes) -> str:
    if body == b"fails":
        raise Caused
    return ANSWER


@pytest.mark.parametrize("make", [starlette, quart, litestar])
def test_frameworks_of_asgi(searched: Searched, make: Any) -> None:
    """R21, R22: what each framework's shell says of what is refused, and what it logs of what failed."""

    async def trial() -> None:
        transport = httpx2.ASGITransport(make(searched), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
            for key, body in ASKED:
                lines = {"idempotency-key": key, "authorization": planted("token"), "content-type": "text/plain"}
                reply = await client.post("/charges", content=body, headers=lines)
                if reply.headers.get("content-type") == "application/problem+json":
                    searched.saw("a problem document", reply.text)

    asyncio.run(trial())


def test_falcon(searched: Searched) -> None:
    """R21, R22: the same by Falcon's blocking shell."""
    safe = OfFalcon(MemoryStore(), scope=lambda request: "ada", observer=searched)

    class Charges:
        @safe.operation(effects="keyed", required=True)
        def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
            response.text = _answered(request.bounded_stream.read())

    app = falcon.App()
    app.add_route("/charges", Charges())
    transport = httpx2.WSGITransport(safe.protect(app), raise_app_exceptions=False, wsgi_errors=io.StringIO())
    with closing(httpx2.Client(transport=transport, base_url="http://here")) as client:
        for key, body in ASKED:
            reply = client.post("/charges", content=body, headers={"idempotency-key": key})
            if reply.headers.get("content-type") == "application/problem+json":
                searched.saw("Falcon's problem document", reply.text)


def test_django(searched: Searched, tmp_path: Path) -> None:
    """R21, R22: Django's answers, blocking and asynchronous, of what is refused and of a view that fails."""
    site = django_site.on_file(tmp_path)

    def work(request: HttpRequest) -> HttpResponse:
        return HttpResponse(_answered(request.body))

    try:
        with site.serving(idempotent(effects="keyed", required=True)(work), TWICESAFE={"OBSERVER": searched}):
            for key, body in ASKED:
                how = {"key": key, "body": body.encode(), "content_type": "text/plain", "user": planted("user")}
                for reply in (site.post(**how), asyncio.run(site.apost(**{**how, "key": key and key + "-4"}))):
                    if reply.headers["content-type"] == "application/problem+json":
                        searched.saw("Django's problem document", reply.content.decode())
    finally:
        site.close()
    assert len([event for event in searched.recorded.events if event.name == "mismatch"]) == 2


@pytest.mark.parametrize("kind", ["ninja", "api_view", "mixin", "viewset"])
def test_frameworks_upon_django(searched: Searched, tmp_path: Path, kind: str) -> None:
    """R21, R22: the same by Django Ninja and by REST framework, in each way to write its views."""
    site = django_site.on_file(tmp_path)
    bodies: list[str] = []

    def work() -> HttpResponse:
        return HttpResponse(_answered(bodies[-1].encode()))

    try:
        made = route(kind, work, effects="keyed", required=True)
        with site.serving(made, TWICESAFE={"OBSERVER": searched}):
            for key, body in ASKED:
                bodies.append(body)
                reply = site.post(key=key, body=body.encode(), content_type="text/plain", user=planted("user"))
                if reply.headers["content-type"] == "application/problem+json":
                    searched.saw(f"a problem document of {kind}", reply.content.decode())
    finally:
        site.close()
    assert len([event for event in searched.recorded.events if event.name == "mismatch"]) == 1
