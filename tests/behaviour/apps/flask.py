"""The probe application in Flask."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import Flask, Response, g, request
from flask_cors import CORS
from werkzeug.exceptions import HTTPException

from tests.behaviour.knobs import (
    CONTRACTS,
    EXPIRES,
    MAPPED,
    MAY_SEND,
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
from twicesafe.flask import Idempotency
from twicesafe.stores.sqlite import SqliteStore

COMMANDS = {
    "gunicorn gthread": "gunicorn tests.behaviour.apps.flask:app -k gthread --threads 24 -b 127.0.0.1:{port}",
    "gunicorn sync": "gunicorn tests.behaviour.apps.flask:app -k sync -b 127.0.0.1:{port}",
    "granian": "granian tests.behaviour.apps.flask:app --interface wsgi --host 127.0.0.1 --port {port} --no-log",
}
NOT_OFFERED = {
    "request lines": "WSGI servers join request lines of one name",
}

store = SqliteStore(database(), configure=configure)
store.apply_schema()
app = Flask("probe")
CORS(
    app,
    origins=[ORIGIN],
    methods=["POST"],
    allow_headers=MAY_SEND,
    expose_headers=[*CORS_EXPOSE_HEADERS],
)
safe = Idempotency(app, store, scope=lambda: g.user)


@app.before_request
def authenticated() -> Response | None:
    """Knows who is calling, before anything else is done for them."""
    if request.method == "OPTIONS" or request.path == "/ready":
        return None
    g.user = user_of(request.headers.get("Authorization"))
    return Response(status=401, headers=[UNAUTHENTICATED]) if g.user is None else None


@app.get("/ready")
def ready() -> str:
    """It serves."""
    return "ready"


@app.errorhandler(MappedError)
def mapped(error: MappedError) -> Any:
    """An error of the application's own."""
    return MAPPED, 409


def http_error(status: int) -> HTTPException:
    """Flask's own, of any status."""
    error = HTTPException()
    error.code = status
    return error


def done(keyed: Any, **how: Any) -> Response:
    """The work of every route."""
    seen = Seen(request.headers.get("Probe"), request.method, request.path, g.user, request.get_data())
    return response_to(work(seen, http_error, keyed=keyed, **how))


def response_to(reply: Reply) -> Response:
    """The answer in Flask's terms."""
    response = Response(reply.chunks() if reply.stream else reply.body, reply.status)
    del response.headers["Content-Type"]
    for name, line in reply.lines:
        response.headers.add(name.decode("latin-1"), line.decode("latin-1"))
    for name in reply.cookies:
        response.set_cookie(name, "1", expires=EXPIRES)
    for task in reply.background:
        response.call_on_close(task)
    return response


def operation(path: str) -> Any:
    """The view of one contract."""

    @safe.operation(CONTRACTS[path], name=path)
    def view(name: str = "") -> Response:
        how = {"append": partial(append_on, safe.connection)} if path == "/tx/jobs" else {"append": append}
        return done(safe.current, **how)

    return view


def unkeyed() -> Response:
    """The work under no contract."""
    return done(None)


for route, policy in CONTRACTS.items():
    app.add_url_rule(route, route, operation(route), methods=sorted(policy.methods))
app.add_url_rule("/things/<name>/jobs", view_func=app.view_functions["/jobs"], endpoint="/jobs", methods=["POST"])
app.add_url_rule("/jobs", "unkeyed", unkeyed, methods=list(UNKEYED))
