"""Pages in a real browser: a form without JavaScript, and a page of another origin."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from playwright.sync_api import Browser
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twicesafe.cors import CORS_ALLOW_HEADERS, CORS_EXPOSE_HEADERS
from twicesafe.starlette import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of `app` under uvicorn, in a thread of its own: a browser's has an event loop already."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def documented_form() -> dict[str, Any]:
    """The application of docs/carriers.md, and what it appends to."""
    text = Path("docs/carriers.md").read_text(encoding="utf-8")
    (example,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "uuid4" in code)
    names: dict[str, Any] = {"store": AsyncMemoryStore(), "shopper": lambda request: "ada"}
    exec("from twicesafe import FormField, Policy\n" + example, names)
    return names


def test_a_form_without_javascript_orders_once(browser: Browser) -> None:
    """R5, R42: sent, its result reloaded, sent again after going back: one order, until the page is fetched anew."""
    shop = documented_form()
    with served(shop["app"]) as address:
        page = browser.new_context(java_script_enabled=False).new_page()
        page.goto(address)
        page.get_by_role("button").click()
        page.wait_for_url("**/orders/1")  # and until it is loaded: what is not cannot be loaded anew
        assert shop["orders"] == ["espresso"]
        page.reload()
        page.go_back()
        page.get_by_role("button").click()
        page.wait_for_url("**/orders/1")
        assert (shop["orders"], urlsplit(page.url).path) == (["espresso"], "/orders/1")
        assert page.title() == "Order 1"
        page.goto(address)
        page.get_by_role("button").click()
        page.wait_for_url("**/orders/2")
        assert (shop["orders"], urlsplit(page.url).path) == (["espresso"] * 2, "/orders/2")


ASK = """async ([address, key]) => {
    const answer = await fetch(address + "/jobs", {
        method: "POST", headers: {"Idempotency-Key": key, "Content-Type": "application/json"}, body: "{}",
    })
    const read = name => answer.headers.get(name)
    return [answer.status, read("Idempotent-Replayed"), read("Location"), read("Idempotency-Key-Retention"),
        read("Retry-After"), await answer.text()]
}"""


def test_a_page_of_another_origin_sends_keys_and_reads_what_comes_of_them(browser: Browser) -> None:
    """G8: its preflights claim nothing; marker, Location and retention are readable, and so is a refusal."""
    store = AsyncMemoryStore()
    done: list[str] = []
    safe = Idempotency(store, scope=lambda request: "ada")

    @safe.operation()
    async def work(request: Request) -> Response:
        done.append(request.method)
        return JSONResponse({"n": len(done)}, 201, {"Location": f"/jobs/{len(done)}"})

    with served(
        Starlette(routes=[Route("/", lambda request: Response("<title>shop</title>", media_type="text/html"))])
    ) as shop:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=[shop],
            allow_methods=["POST"],
            allow_headers=CORS_ALLOW_HEADERS,
            expose_headers=CORS_EXPOSE_HEADERS,
        )
        routes = [Route("/jobs", work, methods=["POST"])]
        with served(Starlette(routes=routes, middleware=[cors, safe.middleware])) as api:
            page = browser.new_page()
            page.goto(shop)
            first = page.evaluate(ASK, [api, "k-1"])
            again = page.evaluate(ASK, [api, "k-1"])
            refused = page.evaluate(ASK, [api, ""])
    assert (done, len(store)) == (["POST"], 1)
    assert first == [201, None, "/jobs/1", "86400", None, '{"n":1}']
    assert again == [201, "true", "/jobs/1", "86400", None, '{"n":1}']
    assert refused[0] == 400 and "key-invalid" in refused[-1]
