"""The stage: the page itself, what it is shown, and the switches it throws. Loads nothing from anywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib.resources import files
from typing import Final, Protocol

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from twicesafe.demo.excerpt import endpoints
from twicesafe.demo.faults import ArmedFaults, Fault
from twicesafe.demo.scene import Scene
from twicesafe.demo.shopper import cookie, new_shopper, shopper_in

MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

LOOK: Final = 5.0
"""Seconds for which whoever asks waits for a request to be held."""
LATER: Final = 2 * 24 * 60 * 60.0
"""Seconds: more than any key of the demo is kept."""

Endpoint = Callable[[Request], Awaitable[Response]]


class Directed(Protocol):
    """A server process that can be told what to do."""

    async def held(self, name: str) -> None:
        """Wait until it holds the request of this name."""

    def go(self, name: str) -> None:
        """Let go of it."""

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for keys."""


def page_files() -> Mapping[str, tuple[bytes, str]]:
    """What the page is made of, by address, read once."""
    found = {}
    for file in files("twicesafe.demo").joinpath("page").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in MEDIA_TYPES:
            found["/" + file.name] = (file.read_bytes(), MEDIA_TYPES[suffix])
    found["/"] = found.pop("/index.html")
    return found


def stage(scene: Scene, faults: ArmedFaults, servers: Collection[Directed], *, lets_expire: bool) -> Starlette:
    """The application behind the page. `lets_expire`: whoever asks for it has every key forgotten."""
    routes = [Route(path, _file(*found)) for path, found in page_files().items()]

    async def state(request: Request) -> Response:
        return JSONResponse(scene.state(_shopper(request)), headers=HEADERS)

    async def events(request: Request) -> Response:
        return StreamingResponse(scene.stream(_shopper(request)), media_type="text/event-stream", headers=HEADERS)

    async def code(_: Request) -> Response:
        return JSONResponse(endpoints(), headers=HEADERS)

    async def arm(request: Request) -> Response:
        wanted = await request.json()
        faults.arm(_shopper(request), str(wanted["key"]), [Fault(name) for name in wanted["faults"]])
        return Response(status_code=204, headers=HEADERS)

    async def held(request: Request) -> Response:
        waiting = [asyncio.create_task(server.held(_named(request))) for server in servers]
        done, pending = await asyncio.wait(waiting, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return Response(status_code=204 if done else 404, headers=HEADERS)

    async def go(request: Request) -> Response:
        for server in servers:
            server.go(_named(request))
        return Response(status_code=204, headers=HEADERS)

    async def expire(_: Request) -> Response:
        for server in servers:
            await server.pass_time(LATER)
        return Response(status_code=204, headers=HEADERS)

    routes += [
        Route("/demo/state", state),
        Route("/demo/events", events),
        Route("/demo/code", code),
        Route("/demo/faults", arm, methods=["POST"]),
        Route("/demo/held", held),
        Route("/demo/go", go, methods=["POST"]),
    ]
    if lets_expire:
        routes.append(Route("/demo/expire", expire, methods=["POST"]))
    # A name that somebody else's DNS points at this machine is not this page's.
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return Starlette(routes=routes, middleware=[hosts])


def _shopper(request: Request) -> str:
    return shopper_in(request.headers.get("cookie", ""))


def _named(request: Request) -> str:
    return request.query_params.get("request", "")


def _file(content: bytes, media_type: str) -> Endpoint:
    async def answer(request: Request) -> Response:
        response = Response(content, media_type=media_type, headers=HEADERS)
        if request.url.path == "/" and not _shopper(request):
            response.headers["set-cookie"] = cookie(new_shopper())
        return response

    return answer
