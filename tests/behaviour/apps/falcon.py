"""The probe application in Falcon, on WSGI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import falcon

from tests.behaviour.knobs import (
    CONTRACTS,
    EXPIRES,
    MAPPED,
    ORIGIN,
    UNAUTHENTICATED,
    UNKEYED,
    MappedError,
    Reply,
    Seen,
    append,
    append_on,
    configure,
    database,
    user_of,
    work,
)
from twicesafe.core.problems import CORS_EXPOSE_HEADERS
from twicesafe.falcon import Idempotency
from twicesafe.stores.sqlite import SqliteStore

COMMANDS = {
    "gunicorn gthread": "gunicorn tests.behaviour.apps.falcon:app -k gthread --threads 24 -b 127.0.0.1:{port}",
    "gunicorn sync": "gunicorn tests.behaviour.apps.falcon:app -k sync -b 127.0.0.1:{port}",
    "granian": "granian tests.behaviour.apps.falcon:app --interface wsgi --host 127.0.0.1 --port {port} --no-log",
}
NOT_OFFERED = {
    "repeated lines": "Falcon joins header lines of one name, cookies apart",
    "request lines": "WSGI servers join request lines of one name",
}

store = SqliteStore(database(), configure=configure)
store.apply_schema()
safe = Idempotency(store, scope=lambda req: req.context.user)


class Authentication:
    """Knows who is calling, before anything else is done for them."""

    def process_request(self, req: Any, resp: Any) -> None:
        """Before routing."""
        if req.method == "OPTIONS" or req.path == "/ready":
            return
        req.context.user = user_of(req.get_header("Authorization"))
        if req.context.user is None:
            name, value = UNAUTHENTICATED
            raise falcon.HTTPError(falcon.HTTP_401, headers={name: value})


class Body:
    """A stream that runs background tasks when it is closed."""

    def __init__(self, pieces: Iterable[bytes], tasks: tuple[Callable[[], object], ...]) -> None:
        self._pieces = iter(pieces)
        self._tasks = tasks

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def close(self) -> None:
        """The answer is sent."""
        for task in self._tasks:
            task()


class Ready:
    """It serves."""

    def on_get(self, req: Any, resp: Any) -> None:
        """Says so."""
        resp.text = "ready"


def done(req: Any, resp: Any, keyed: Any, **how: Any) -> None:
    """The work of every route."""
    body = req.bounded_stream.read() if req.content_length else b""
    if req.get_header("Transfer-Encoding") and req.env.get("wsgi.input_terminated"):
        body = req.stream.read()
    seen = Seen(req.get_header("Probe"), req.method, req.path, req.context.user, body)
    answer(work(seen, falcon.HTTPError, keyed=keyed, **how), resp)


def answer(reply: Reply, resp: Any) -> None:
    """The answer in Falcon's terms."""
    resp.status = reply.status
    for name, line in reply.lines:
        if name.lower() == b"content-type":
            resp.content_type = line.decode("latin-1")
        else:
            resp.append_header(name.decode("latin-1"), line.decode("latin-1"))
    for name in reply.cookies:
        resp.set_cookie(name, "1", expires=EXPIRES)
    if reply.stream:
        resp.stream = Body(reply.chunks(), reply.background)
    elif reply.background:
        resp.set_stream(Body([reply.body], reply.background), len(reply.body))
    else:
        resp.data = reply.body


def mapped(req: Any, resp: Any, error: Exception, params: Any) -> None:
    """An error of the application's own."""
    resp.status, resp.media = 409, MAPPED


def resource(path: str) -> Any:
    """The resource of one contract."""

    @safe.operation(CONTRACTS[path], name=path)
    def responder(self: Any, req: Any, resp: Any, name: str = "") -> None:
        keyed = safe.current(req)
        done(req, resp, keyed, append=partial(append_on, keyed.connection) if path == "/tx/jobs" else append)

    def unkeyed(self: Any, req: Any, resp: Any, name: str = "") -> None:
        done(req, resp, None)

    responders = {f"on_{method.lower()}": responder for method in CONTRACTS[path].methods}
    if path == "/jobs":
        responders |= {f"on_{method.lower()}": unkeyed for method in UNKEYED}
    return type("Work", (), responders)()


application = falcon.App(
    middleware=[falcon.CORSMiddleware(allow_origins=[ORIGIN], expose_headers=[*CORS_EXPOSE_HEADERS]), Authentication()]
)
application.add_error_handler(MappedError, mapped)
application.add_route("/ready", Ready())
resources = {route: resource(route) for route in CONTRACTS}
for route, its in resources.items():
    application.add_route(route, its)
application.add_route("/things/{name}/jobs", type("Things", (), {"on_post": type(resources["/jobs"]).on_post})())
app = safe.protect(application)
