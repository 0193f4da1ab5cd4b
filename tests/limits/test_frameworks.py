"""Limits on new keys in each framework's own shell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import falcon
import falcon.testing
import pytest
import quart
from django.http import HttpRequest, HttpResponse
from fastapi import FastAPI
from flask import Flask
from litestar import Litestar, post
from litestar.testing import TestClient as LitestarClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.shells.django_site import on_file
from twicesafe import PUBLIC, Limits, Policy
from twicesafe.django import idempotent
from twicesafe.falcon import Idempotency as FalconIdempotency
from twicesafe.fastapi import Idempotency as FastapiIdempotency
from twicesafe.flask import Idempotency as FlaskIdempotency
from twicesafe.litestar import Idempotency as LitestarIdempotency
from twicesafe.quart import Idempotency as QuartIdempotency
from twicesafe.starlette import Idempotency as StarletteIdempotency
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore

POLICY = Policy(limits=Limits(new_keys=2))
Ask = Callable[[str], int]


def in_fastapi(ledger: list[int]) -> Iterator[Ask]:
    app = FastAPI()
    safe = FastapiIdempotency(app, AsyncMemoryStore(), scope=PUBLIC, policy=POLICY)

    @app.post("/jobs", status_code=201)
    @safe.operation()
    async def work() -> None:
        ledger.append(1)

    assert "429" in app.openapi()["paths"]["/jobs"]["post"]["responses"]
    with TestClient(app) as client:
        yield lambda key: client.post("/jobs", headers={"Idempotency-Key": key}).status_code


def in_starlette(ledger: list[int]) -> Iterator[Ask]:
    safe = StarletteIdempotency(AsyncMemoryStore(), scope=PUBLIC, policy=POLICY)

    @safe.operation()
    async def work(request: Request) -> JSONResponse:
        ledger.append(1)
        return JSONResponse({}, 201)

    app = Starlette(routes=[Route("/jobs", work, methods=["POST"])], middleware=[safe.middleware])
    with TestClient(app) as client:
        yield lambda key: client.post("/jobs", headers={"Idempotency-Key": key}).status_code


def in_litestar(ledger: list[int]) -> Iterator[Ask]:
    safe = LitestarIdempotency(AsyncMemoryStore(), scope=PUBLIC, policy=POLICY)

    @post("/jobs")
    @safe.operation()
    async def work() -> str:
        ledger.append(1)
        return "done"

    with LitestarClient(Litestar([work], plugins=[safe], logging_config=None)) as client:
        yield lambda key: client.post("/jobs", headers={"Idempotency-Key": key}).status_code


def in_quart(ledger: list[int]) -> Iterator[Ask]:
    app = quart.Quart("work")
    safe = QuartIdempotency(app, AsyncMemoryStore(), scope=PUBLIC, policy=POLICY)

    @app.post("/jobs")
    @safe.operation()
    async def work() -> tuple[str, int]:
        ledger.append(1)
        return "done", 201

    async def ask(key: str) -> int:
        return int((await app.test_client().post("/jobs", headers={"Idempotency-Key": key})).status_code)

    yield lambda key: asyncio.run(ask(key))


def in_flask(ledger: list[int]) -> Iterator[Ask]:
    app = Flask("work")
    safe = FlaskIdempotency(app, MemoryStore(), scope=PUBLIC, policy=POLICY)

    @app.post("/jobs")
    @safe.operation()
    def work() -> tuple[str, int]:
        ledger.append(1)
        return "done", 201

    yield lambda key: app.test_client().post("/jobs", headers={"Idempotency-Key": key}).status_code


def in_falcon(ledger: list[int]) -> Iterator[Ask]:
    safe = FalconIdempotency(MemoryStore(), scope=PUBLIC, policy=POLICY)

    class Work:
        @safe.operation()
        def on_post(self, req: Any, resp: Any) -> None:
            ledger.append(1)
            resp.status = falcon.HTTP_201

    app: Any = falcon.App()
    app.add_route("/jobs", Work())
    client = falcon.testing.TestClient(safe.protect(app))
    yield lambda key: int(client.simulate_post("/jobs", headers={"Idempotency-Key": key}).status_code)


@pytest.mark.parametrize("framework", [in_fastapi, in_starlette, in_litestar, in_quart, in_flask, in_falcon])
def test_the_third_new_key_is_refused(framework: Any) -> None:
    """R15, R11: two new keys run, the third does not, and known ones get their answers in between and afterwards."""
    ledger: list[int] = []
    serving = framework(ledger)
    ask = next(serving)
    statuses = [ask(f"k-{number:016}") for number in (1, 2, 1, 3, 4, 2, 1)]
    assert len(ledger) == 2
    assert statuses == [201, 201, 201, 429, 429, 201, 201]
    assert next(serving, "over") == "over"


def test_in_django(tmp_path: Path) -> None:
    """R15, R11: the same in Django, under WSGI and under ASGI."""
    site = on_file(tmp_path)

    @idempotent(limits=POLICY.limits)
    def work(request: HttpRequest) -> HttpResponse:
        site.append()
        return HttpResponse("done", status=201)

    try:
        with site.serving(work):
            statuses = [site.post(key=f"k-{number:016}").status_code for number in (1, 2, 3, 1)]
            assert site.rows() == 2
            assert statuses == [201, 201, 429, 201]
            assert asyncio.run(site.apost(key="k-another-000004")).status_code == 429
            assert asyncio.run(site.apost(key=f"k-{1:016}")).status_code == 201
    finally:
        site.close()
