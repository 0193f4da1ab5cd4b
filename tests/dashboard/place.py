"""A shop whose charges may end unknown, with its dashboard mounted in it, on a real store and a real server."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from twicesafe import Policy
from twicesafe.dashboard import Dashboard, Tally, hash_password
from twicesafe.reconcile import Answered, Unclear, Unknown
from twicesafe.starlette import Idempotency
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore

PASSWORD = "correct horse battery"
CHEAP = (2, 1, 1)
"""The cost of a password that protects nothing."""
PEOPLE = {"ann": hash_password(PASSWORD, CHEAP)}
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
PATIENCE = 60.0
"""Seconds that a busy machine may take for anything here."""


class Place:
    """`charges` are the effects, `says` is what the provider says of each; a charge that is to `fail` does so after."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.db"
        self.charges: list[str] = []
        self.fail = False
        self.says: Answered = Unclear()
        self.asked: list[Unknown] = []
        self.origin = ""
        self.tally = Tally(also=lambda event: None)
        self.store = SqliteStore(self.file)
        self.store.apply_schema()

    @property
    def url(self) -> str:
        return f"{self.origin}/dashboard"

    def find(self, unknown: Unknown) -> Answered:
        """The reconciler."""
        self.asked.append(unknown)
        return self.says

    def application(self, **settings: Any) -> Any:
        """The shop, and its dashboard."""
        records = AsyncSqliteStore(self.file)
        policy = Policy(unknown_on_error=True)
        safe = Idempotency(records, scope=lambda request: "user-7", policy=policy, observer=self.tally)

        @safe.operation(name="create_charge", required=True)
        async def charge(request: Request) -> Response:
            self.charges.append((await request.body()).decode())
            if self.fail:
                raise TimeoutError("the provider did not answer")
            return JSONResponse({"charge": len(self.charges)}, 201)

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await records.aclose()

        given = {"people": PEOPLE, "reconcilers": {"create_charge": self.find}, "tally": self.tally} | settings
        dashboard = Dashboard(self.store, **given)
        return Starlette(
            routes=[Route("/charges", charge, methods=["POST"]), Mount("/dashboard", dashboard)],
            middleware=[safe.middleware],
            lifespan=lifespan,
        )

    def charge(self, key: str = KEY, body: bytes = b'{"amount":100}') -> tuple[int, bytes]:
        """A client's attempt. Status and body of the answer."""
        status, _, answer = ask(f"{self.origin}/charges", body, {"idempotency-key": key})
        return status, answer

    def unknown(self, key: str = KEY) -> None:
        """An attempt whose outcome nobody knows."""
        self.fail = True
        assert self.charge(key)[0] >= 400
        self.fail = False


def ask(
    url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """One request, without following where it leads to. Status, headers and body, whatever the status."""
    request = urllib.request.Request(url, body, dict(headers or {}))
    try:
        with _OPENER.open(request, timeout=PATIENCE) as answer:
            return answer.status, {name.lower(): line for name, line in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, {name.lower(): line for name, line in refused.headers.items()}, refused.read()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """Do not follow."""


_OPENER = urllib.request.build_opener(_Stay)


@contextmanager
def serving(application: Any) -> Iterator[str]:
    """Serve it in a thread of its own: a browser's has an event loop already. Where it is."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def place(folder: Path, **settings: Any) -> Iterator[Place]:
    """A shop that is open."""
    opened = Place(folder)
    with closing(opened.store), serving(opened.application(**settings)) as opened.origin:
        yield opened
