"""Methods that are not written in capitals. The standard tells `post` from POST; some frameworks and proxies do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import flask
import pytest
import quart
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import Response
from starlette.routing import Route
from werkzeug.test import EnvironBuilder

import twicesafe.flask
import twicesafe.quart
import twicesafe.starlette
from tests.shells.probe import post
from twicesafe import PUBLIC
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.wsgi import IdempotencyMiddleware as WSGIMiddleware

Call = Callable[[str], None]


def asking(app: Any) -> Call:
    """Asks an ASGI application by the given method."""

    def call(method: str) -> None:
        asyncio.run(post(app, method=method))

    return call


def asking_wsgi(app: Any) -> Call:
    """Asks a WSGI application by the given method."""

    def call(method: str) -> None:
        environ = EnvironBuilder("/jobs", method="POST", headers={"Idempotency-Key": "k-1"}).get_environ()
        environ["REQUEST_METHOD"] = method
        b"".join(app(environ, lambda *_: None))

    return call


def quart_app(ledger: list[int], *, middleware: bool) -> Call:
    app = quart.Quart(__name__)
    safe = twicesafe.quart.Idempotency(app, AsyncMemoryStore(), scope=PUBLIC)

    async def work() -> str:
        ledger.append(1)
        return "done"

    app.post("/jobs")(work if middleware else safe.operation()(work))
    return asking(IdempotencyMiddleware(app, AsyncMemoryStore(), scope=PUBLIC) if middleware else app)


def starlette_class(ledger: list[int]) -> Call:
    safe = twicesafe.starlette.Idempotency(AsyncMemoryStore(), scope=PUBLIC)

    class Work(HTTPEndpoint):
        @safe.operation()
        async def post(self, request: Any) -> Response:
            ledger.append(1)
            return Response("done")

    return asking(Starlette(routes=[Route("/jobs", Work)], middleware=[safe.middleware]))


def flask_app(ledger: list[int], *, middleware: bool) -> Call:
    app = flask.Flask(__name__)
    safe = twicesafe.flask.Idempotency(app, MemoryStore(), scope=PUBLIC)

    def work() -> str:
        ledger.append(1)
        return "done"

    app.post("/jobs")(work if middleware else safe.operation()(work))
    return asking_wsgi(WSGIMiddleware(app, MemoryStore(), scope=PUBLIC) if middleware else app)


@pytest.mark.parametrize(
    "made",
    [
        lambda ledger: quart_app(ledger, middleware=True),
        lambda ledger: quart_app(ledger, middleware=False),
        starlette_class,
        lambda ledger: flask_app(ledger, middleware=True),
        lambda ledger: flask_app(ledger, middleware=False),
    ],
    ids=["asgi", "quart", "starlette", "wsgi", "flask"],
)
def test_a_method_in_small_letters_takes_keys(made: Callable[[list[int]], Call]) -> None:
    """R2, R10: where the framework takes `post` for POST, a key that comes with it is claimed: it happens once."""
    ledger: list[int] = []
    call = made(ledger)
    for method in ("post", "post", "POST"):
        call(method)
    assert ledger == [1]
