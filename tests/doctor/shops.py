"""Applications to be looked at: one that is honest for each framework, to be planted with what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from flask import Flask
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from twicesafe import Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.fastapi import Idempotency
from twicesafe.flask import Idempotency as FlaskIdempotency
from twicesafe.starlette import Idempotency as StarletteIdempotency
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.wsgi import IdempotencyMiddleware as WsgiMiddleware


def user_of(request: Request) -> str | None:
    """As an authentication layer has found it out."""
    return getattr(request.state, "user", None)


bearer = HTTPBearer()


def current_user(token: Annotated[Any, Depends(bearer)]) -> str:
    """Who has this token."""
    return {"secret": "ann"}[token.credentials]


class Authentication:
    """A layer that knows callers by their tokens, and passes on what it gets."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})["user"] = None
        await self.app(scope, receive, send)


class WsgiAuthentication:
    def __init__(self, app: Any) -> None:
        self.app = app

    def __call__(self, environ: Any, start_response: Any) -> Any:
        environ["shop.user"] = None
        return self.app(environ, start_response)


AROUND = (Middleware(CORSMiddleware), Middleware(GZipMiddleware), Middleware(Authentication))


def records(folder: Path) -> str:
    path = folder / "records.db"
    with_tables = SqliteStore(path)
    with_tables.apply_schema()
    with_tables.close()
    return str(path)


async def charged(request: Request) -> JSONResponse:
    return JSONResponse({"id": "ch_1"}, 201)


def starlette_shop(folder: Path, *, scope: Any = user_of, policy: Policy | None = None, **how: Any) -> Any:
    """`around` and `inside` are layers; `store` another than a file with tables; `endpoint` another handler."""
    store = how["store"] if "store" in how else AsyncSqliteStore(records(folder))
    safe = StarletteIdempotency(store, scope=scope, policy=policy)
    endpoint = safe.operation(name="charge")(how.get("endpoint", charged))
    return Starlette(
        routes=[Route("/charges", endpoint, methods=["POST"]), *how.get("routes", ())],
        middleware=[*how.get("around", AROUND), safe.middleware, *how.get("inside", ())],
    )


def fastapi_shop(folder: Path, *, scope: Any = current_user, **how: Any) -> Any:
    app = FastAPI(middleware=list(how.get("around", AROUND)))
    safe = Idempotency(app, how["store"] if "store" in how else AsyncSqliteStore(records(folder)), scope=scope)
    app.user_middleware += how.get("inside", ())

    @app.post("/charges", dependencies=[Depends(bearer)])
    @safe.operation(**how.get("settings", {}))
    async def charge() -> dict[str, str]:
        return {"id": "ch_1"}

    return app


def flask_shop(folder: Path, *, scope: Any = lambda: None, policy: Policy | None = None, **how: Any) -> Any:
    app = Flask("shop")
    safe = FlaskIdempotency(
        app, how["store"] if "store" in how else SqliteStore(records(folder)), scope=scope, policy=policy
    )

    @app.post("/charges")
    @safe.operation()
    def charge() -> Any:
        return {"id": "ch_1"}, 201

    for layer in reversed(how.get("around", (WsgiAuthentication,))):
        app.wsgi_app = layer(app.wsgi_app)
    return app


def asgi_shop(folder: Path, *, scope: Callable[..., Any] = lambda scope: scope["state"]["user"], **how: Any) -> Any:
    """A bare application in twicesafe's middleware, in an authentication layer."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    inner: Any = app
    for layer in reversed(how.get("inside", ())):
        inner = layer(inner)
    safe = IdempotencyMiddleware(
        inner, how["store"] if "store" in how else AsyncSqliteStore(records(folder)), scope=scope
    )
    for layer in reversed(how.get("around", (Authentication,))):
        safe = layer(safe)
    return safe


def wsgi_shop(folder: Path, *, scope: Any = lambda environ: environ["shop.user"], **how: Any) -> Any:
    def app(environ: Any, start_response: Any) -> Any:
        raise NotImplementedError

    safe: Any = WsgiMiddleware(app, how["store"] if "store" in how else SqliteStore(records(folder)), scope=scope)
    for layer in reversed(how.get("around", (WsgiAuthentication,))):
        safe = layer(safe)
    return safe
