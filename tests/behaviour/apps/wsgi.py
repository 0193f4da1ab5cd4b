"""The probe application as bare WSGI."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from email.utils import format_datetime
from functools import partial
from http import HTTPStatus
from typing import Any

from tests.behaviour.knobs import (
    CONTRACTS,
    EXPIRES,
    MAPPED,
    UNAUTHENTICATED,
    MappedError,
    Reply,
    Seen,
    append,
    append_on,
    configure,
    database,
    route_of,
    takes,
    user_of,
    work,
)
from twicesafe import Operation
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.wsgi import IdempotencyMiddleware, current

COMMANDS = {
    "gunicorn gthread": "gunicorn tests.behaviour.apps.wsgi:app -k gthread --threads 24 -b 127.0.0.1:{port}",
    "gunicorn sync": "gunicorn tests.behaviour.apps.wsgi:app -k sync -b 127.0.0.1:{port}",
    "granian": "granian tests.behaviour.apps.wsgi:app --interface wsgi --host 127.0.0.1 --port {port} --no-log",
}
NOT_OFFERED = {
    "cross-origin": "WSGI has no layer for it",
    "request lines": "WSGI servers join request lines of one name",
}

store = SqliteStore(database(), configure=configure)
store.apply_schema()
OPERATIONS = {path: Operation(path, policy) for path, policy in CONTRACTS.items()}


class StatusError(Exception):
    """An HTTP error: the innermost layer turns it into its status."""


def handler(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The work of every route."""
    path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
    keyed = current(environ) if "twicesafe.request" in environ else None
    length = environ.get("CONTENT_LENGTH")
    body = environ["wsgi.input"].read(*([int(length)] if length else [])) if length or chunked(environ) else b""
    seen = Seen(environ.get("HTTP_PROBE"), method, path, environ["probe.user"], body)
    in_transaction = keyed is not None and path == "/tx/jobs"
    reply = work(
        seen, StatusError, keyed=keyed, append=partial(append_on, keyed.connection) if in_transaction else append
    )
    return answer(reply, start_response)


def chunked(environ: dict[str, Any]) -> bool:
    """Whether the server hands on a body of unknown length."""
    return bool(environ.get("wsgi.input_terminated")) and "HTTP_TRANSFER_ENCODING" in environ


class Body:
    """An iterable that runs background tasks when it is closed."""

    def __init__(self, pieces: Iterable[bytes], tasks: tuple[Callable[[], object], ...]) -> None:
        self._pieces = pieces
        self._tasks = tasks

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        """The answer is sent."""
        for task in self._tasks:
            task()


def answer(reply: Reply, start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The answer in WSGI's terms."""
    lines = [(name.decode("latin-1"), line.decode("latin-1")) for name, line in reply.lines]
    expires = format_datetime(EXPIRES, usegmt=True)
    lines += [("set-cookie", f"{name}=1; Expires={expires}") for name in reply.cookies]
    if not reply.stream and reply.status not in (204, 304):
        lines.append(("content-length", str(len(reply.body))))
    start_response(line_of(reply.status), lines)
    pieces = reply.chunks() if reply.stream else [reply.body]
    return Body(pieces, reply.background) if reply.background else pieces


def line_of(status: int) -> str:
    """The status line."""
    return f"{status} {HTTPStatus(status).phrase}"


def plain(start_response: Callable[..., Any], status: int, body: bytes = b"", *lines: tuple[str, str]) -> list[bytes]:
    """An answer of the application around the work."""
    start_response(line_of(status), [("content-length", str(len(body))), *lines])
    return [body]


def errors_handled(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The innermost layer: routes, and turns errors into answers."""
    route = route_of(environ["PATH_INFO"])
    if route is None:
        return plain(start_response, 404)
    if not takes(route, environ["REQUEST_METHOD"]):
        return plain(start_response, 405)
    environ["probe.entered"] = True
    try:
        return handler(environ, start_response)
    except MappedError:
        return plain(start_response, 409, json.dumps(MAPPED).encode(), ("content-type", "application/json"))
    except StatusError as error:
        return plain(start_response, error.args[0], b"refused")


safe = IdempotencyMiddleware(
    errors_handled,
    store,
    scope=lambda environ: environ["probe.user"],
    operation=lambda environ: OPERATIONS.get(route_of(environ["PATH_INFO"]) or ""),
    entered=lambda environ, status: "probe.entered" in environ,
)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Authentication around everything."""
    if environ["PATH_INFO"] == "/ready":
        return plain(start_response, 200, b"ready")
    environ["probe.user"] = user_of(environ.get("HTTP_AUTHORIZATION"))
    if environ["probe.user"] is None:
        return plain(start_response, 401, b"", UNAUTHENTICATED)
    return safe(environ, start_response)
