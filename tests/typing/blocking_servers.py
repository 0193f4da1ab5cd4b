"""A user's WSGI, Flask and Falcon applications, for mypy --strict."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import falcon
from flask import Flask, g
from flask.typing import ResponseReturnValue

from twicesafe import PUBLIC, Operation, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.falcon import Idempotency as FalconIdempotency
from twicesafe.flask import BlockingRequest, Idempotency
from twicesafe.observe import Event
from twicesafe.stores.contract import Store
from twicesafe.stores.memory import MemoryStore
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.wsgi import Environ, IdempotencyMiddleware, WSGIApp, current


def caller(environ: Environ) -> str | None:
    """Who is asking; None is refused."""
    return environ.get("app.user")


def operation(environ: Environ) -> Operation | None:
    """What is asked for; None takes no key."""
    return Operation("charge") if environ["PATH_INFO"] == "/charges" else None


def entered(environ: Environ, status: int) -> bool | None:
    """Whether the handler was reached."""
    return None if status != 404 else "app.route" in environ


def count(event: Event) -> None:
    """An observer."""
    print(event.name, event.operation, event.key_hint, event.loud)


def wrapped(app: WSGIApp, store: Store) -> WSGIApp:
    """Every way of saying what and for whom."""
    IdempotencyMiddleware(app, store, scope=PUBLIC, policy=Policy(required=True))
    return IdempotencyMiddleware(app, store, scope=caller, operation=operation, observer=count, entered=entered)


def handler(environ: Environ) -> str:
    """What a handler asks for."""
    keyed: BlockingRequest = current(environ)
    keyed.nothing_done()
    return keyed.derived_key("send") + keyed.key


app = Flask("shop")
safe = Idempotency(app, SqliteStore("shop.db"), scope=lambda: g.user, policy=Policy(required=True), observer=count)
public = Idempotency(scope=PUBLIC, every_view=True)
public.init_app(app, MemoryStore())


def again(stored: StoredResponse) -> ResponseReturnValue | None:
    """The answer to a duplicate."""
    return {"status": stored.status}, 200


@app.post("/charges")
@safe.operation(effects="transactional", lease=timedelta(seconds=10), rebuild=again)
def charge() -> ResponseReturnValue:
    """A view keeps its type."""
    safe.connection.execute("INSERT INTO charges DEFAULT VALUES")
    return {"key": safe.current.key}, 201


answer: ResponseReturnValue = charge()

falcon_safe = FalconIdempotency(MemoryStore(), scope=lambda req: req.context.user, observer=count)


class Charges:
    """A resource."""

    @falcon_safe.operation(Policy(required=True), name="charge")
    def on_post(self, req: falcon.Request, resp: falcon.Response, **params: Any) -> None:
        """A responder keeps its type."""
        resp.media = {"key": falcon_safe.current(req).derived_key("send")}


protected: WSGIApp = falcon_safe.protect(falcon.App(), every_responder=True)
