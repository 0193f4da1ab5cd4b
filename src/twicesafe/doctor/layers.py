"""The order in which layers stand, and whether those outside pass on what they get."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterator
from typing import Any, Final

from twicesafe.doctor.catalogue import Finding
from twicesafe.doctor.subject import Guard, Layer, Subject, name_of

OUTSIDE_ONLY: Final = (
    ("compression-inside", re.compile(r"gzip|brotli|zstd|compress", re.IGNORECASE)),
    ("cors-inside", re.compile(r"cors", re.IGNORECASE)),
    ("session-inside", re.compile(r"session(?!auth)", re.IGNORECASE)),
    ("authentication-inside", re.compile(r"auth|jwt|login|oidc", re.IGNORECASE)),
    ("retries-inside", re.compile(r"retry|retries", re.IGNORECASE)),
)
"""By what layers are called: it is how they are known to people, too. The first one that fits names it."""

RETRIED: Final = ("tenacity", "stamina", "backoff", "retry", "retrying")
"""Packages whose decorators call again."""

BODY: Final = b'{"twicesafe": "doctor"}'
SECONDS: Final = 5.0
KNOWN: Final = ("starlette.middleware.", "django.", "werkzeug.", "fastapi.", "twicesafe.")
"""Whose layers pass bodies on."""


def judge_layers(subject: Subject) -> Iterator[Finding]:
    """All that concerns them."""
    for guard in subject.guards:
        for layer in guard.inside:
            code = next((code for code, named in OUTSIDE_ONLY if named.search(_last(layer.name))), None)
            if code is not None:
                yield Finding(code, layer.name, f"inside of {guard.name}")
        for layer in guard.outside:
            if layer.around is not None and not layer.name.startswith(KNOWN):
                passed_on = _through_asgi(layer) if subject.asgi else _through_wsgi(layer)
                if passed_on is not None and passed_on != BODY:
                    yield Finding("body-consumed", layer.name, f"{len(passed_on)} of {len(BODY)} bytes came through")
        yield from _retried(subject, guard)


def _last(name: str) -> str:
    """What a layer is called, without where it is from: a package `authlib_demo` says nothing of its classes."""
    return name.rpartition(".")[2]


def _retried(subject: Subject, guard: Guard) -> Iterator[Finding]:
    for route in subject.routes:
        if route.operation is None and not guard.every_route:
            continue
        function, depth = route.endpoint, 0
        while function is not None and depth < 20:
            by = next((package for package in RETRIED if _made_by(function, package)), None)
            if by is not None:
                yield Finding("retries-inside", route.path, f"{name_of(route.endpoint)} is decorated by {by}")
                break
            function, depth = getattr(function, "__wrapped__", None), depth + 1


def _made_by(function: Any, package: str) -> bool:
    code = getattr(function, "__globals__", {}).get("__name__", "")
    return str(code).partition(".")[0] == package


class _Inner:
    """The application that a layer is tried around."""

    def __init__(self, *, is_asynchronous: bool) -> None:
        self.received: bytes | None = None
        if is_asynchronous:
            self.is_asynchronous = True

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        self.received = b""
        while more:
            message = await receive()
            if message["type"] != "http.request":
                break
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.received = body
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def wsgi(self, environ: Any, start_response: Any) -> list[bytes]:
        self.received = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("204 No Content", [])
        return []


def _through_asgi(layer: Layer) -> bytes | None:
    """The body as it comes out of the layer; None where it lets no such request through."""
    inner = _Inner(is_asynchronous=True)

    class Application:
        is_asynchronous = True

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await inner.asgi(scope, receive, send)

    async def run() -> None:
        assert layer.around is not None
        parts = [BODY[:10], BODY[10:]]
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                gone.set()

        async with asyncio.timeout(SECONDS):
            await layer.around(Application())(_scope(), receive, send)

    try:
        asyncio.run(run())
    except (Exception, SystemExit):  # noqa: BLE001 - a layer that cannot be tried by itself is not judged
        return inner.received or None
    return inner.received


def _through_wsgi(layer: Layer) -> bytes | None:
    assert layer.around is not None
    inner = _Inner(is_asynchronous=False)
    environ = {
        "REQUEST_METHOD": "POST", "SCRIPT_NAME": "", "PATH_INFO": "/", "QUERY_STRING": "", "SERVER_NAME": "localhost",
        "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(BODY)), "HTTP_HOST": "localhost", "wsgi.version": (1, 0), "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(BODY), "wsgi.errors": io.StringIO(), "wsgi.multithread": False,
        "wsgi.multiprocess": False, "wsgi.run_once": True,
    }  # fmt: skip
    try:
        for _ in layer.around(inner.wsgi)(environ, lambda *_: lambda _: None):
            pass
    except (Exception, SystemExit):  # noqa: BLE001 - a layer that cannot be tried by itself is not judged
        return inner.received or None
    return inner.received


def _scope() -> dict[str, Any]:
    return {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": "/", "raw_path": b"/", "root_path": "", "query_string": b"",
        "headers": [
            (b"host", b"localhost"), (b"content-type", b"application/json"),
            (b"content-length", str(len(BODY)).encode()),
        ],
        "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
