"""A shop for a browser: its pages, endpoints that twicesafe guards, and one that answers as the test says."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from twicesafe import FormField, Policy
from twicesafe.cors import CORS_ALLOW_HEADERS, CORS_EXPOSE_HEADERS
from twicesafe.starlette import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore

MODULE = Path(__file__).parents[2] / "js" / "twicesafe.js"

Act = Callable[[Request], Response]

FORM = """<!doctype html><title>Shop</title>
<form id="order" method="post" action="/orders">{field}
  <input name="item" value="espresso"><button>Order</button>
</form>
<script type="module">
  import {{ protectForm }} from "/twicesafe.js";
  window.guard = protectForm(document.querySelector("#order"));
</script>"""


class Shop:
    """`orders` are the effects; `seen` has each POST that arrived, as its path and headers; `acts` answer /played."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.asked: list[str] = []
        """The headers that preflights asked for."""
        self.acts: list[Act] = []
        self.origin = ""

    def keys(self) -> list[str | None]:
        return [headers.get("idempotency-key") for _, headers in self.seen]

    def application(self) -> Any:
        safe = Idempotency(
            AsyncMemoryStore(),
            scope=lambda request: "ada",
            policy=Policy(fields=(FormField("idempotency_key"),)),
        )

        @safe.operation(required=True)
        async def order(request: Request) -> Response:
            async with request.form() as sent:
                self.orders.append(str(sent["item"]))
            return RedirectResponse(f"/orders/{len(self.orders)}", status_code=303)

        @safe.operation(required=True)
        async def charge(request: Request) -> Response:
            self.orders.append((await request.body()).decode())
            return JSONResponse({"n": len(self.orders)}, 201)

        async def played(request: Request) -> Response:
            await request.body()
            return self.acts.pop(0)(request)

        async def form(request: Request) -> Response:
            field = f'<input type="hidden" name="idempotency_key" value="{uuid4()}">'
            return HTMLResponse(FORM.format(field="" if "bare" in request.query_params else field))

        async def module(request: Request) -> Response:
            return Response(MODULE.read_bytes(), media_type="text/javascript")

        async def page(request: Request) -> Response:
            return HTMLResponse("<!doctype html><title>Shop</title><link rel=icon href=data:>")

        async def ordered(request: Request) -> Response:
            return HTMLResponse(f"<!doctype html><title>Order {request.path_params['n']}</title>")

        routes = [
            Route("/", page),
            Route("/form", form),
            Route("/twicesafe.js", module),
            Route("/orders", order, methods=["POST"]),
            Route("/orders/{n:int}", ordered),
            Route("/charges", charge, methods=["POST"]),
            Route("/played", played, methods=["GET", "POST"]),
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=["*"],
            allow_methods=["POST"],
            allow_headers=CORS_ALLOW_HEADERS,
            expose_headers=CORS_EXPOSE_HEADERS,
        )
        return self._watched(Starlette(routes=routes, middleware=[cors, safe.middleware]))

    def _watched(self, application: Any) -> Any:
        async def watched(scope: Any, receive: Any, send: Any) -> None:
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            if scope["method"] == "POST":
                self.seen.append((scope["path"], headers))
            elif scope["method"] == "OPTIONS":
                self.asked += re.split(r"[, ]+", headers.get("access-control-request-headers", ""))
            await application(scope, receive, send)

        return watched


@contextmanager
def shop() -> Iterator[Shop]:
    """A shop that is open, in a thread of its own: a browser's has an event loop already."""
    opened = Shop()
    listening = socket.create_server(("127.0.0.1", 0))
    opened.origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
    config = uvicorn.Config(opened.application(), log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield opened
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


# --- acts ------------------------------------------------------------------------------------------------------------


def answer(status: int, body: object = None, **headers: str) -> Act:
    """An answer as it should be."""
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: JSONResponse(body, status, lines)


def cut(request: Request) -> Response:
    """Half of a body."""

    async def half() -> AsyncIterator[bytes]:
        yield b'{"charge":'

    return StreamingResponse(half(), 201, {"content-length": "100"})


def drip(request: Request) -> Response:
    """A body that comes, a byte at a time, for ever."""

    async def drops() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x"
            await asyncio.sleep(0.02)

    return StreamingResponse(drops(), 201)
