"""Whatever goes wrong with a request, nobody is told of its key, its body, its lines or its answer."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import fastapi
import flask
import httpx2
import pytest

from tests.gateway.scripted import Service
from tests.shells.probe import Probe, post
from tests.shells.rig import Failing
from tests.telemetry.searched import ANSWER, BODY, KEY, PASSWORD, Caused, Searched, by_a_driver, planted
from twicesafe import PUBLIC, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.carriers import JsonMember
from twicesafe.errors import (
    AmbiguousWriteError,
    LeaseLostError,
    StoreUnavailableError,
    TwicesafeError,
)
from twicesafe.fastapi import Idempotency
from twicesafe.flask import Idempotency as FlaskIdempotency
from twicesafe.gateway import CallerHeader, Gateway
from twicesafe.lookup import AsyncKeyLookup
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.wsgi import IdempotencyMiddleware as WsgiMiddleware

HEADERS = [(b"authorization", f"Bearer {planted('token')}".encode()), (b"x-trace", planted("line").encode())]


FAULTS: list[tuple[str, Exception, bool]] = [
    ("claim", StoreUnavailableError("down"), False),
    ("claim", AmbiguousWriteError("cut"), True),
    ("claim", Caused(), False),
    ("complete", StoreUnavailableError("down"), False),
    ("complete", LeaseLostError("late"), False),
    ("complete", AmbiguousWriteError("cut"), True),
    ("complete", Caused(), False),
    ("hold", StoreUnavailableError("down"), False),
    ("release", StoreUnavailableError("down"), False),
]

POLICIES = {
    "opaque": Policy(),
    "keyed": Policy(effects="keyed"),
    "unknown": Policy(unknown_on_error=True),
    "required": Policy(required=True, body_limit=200),
    "in a member": Policy(header="", fields=(JsonMember("key"),)),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_requests_under_asgi(searched: Searched, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """R21, R22: first runs, replays, mismatches, refusals, a handler and a store that fail tell nobody anything."""
    monkeypatch.setattr("twicesafe.core.exchange.FIRST_PAUSE", 1)

    async def ask(app: Any, **how: Any) -> None:
        member = json.dumps({"key": how.get("key", KEY), "card": BODY}).encode()
        body = how.pop("body", BODY.encode() if policy.header else member)
        if not policy.header:
            how["key"] = None
        reply = await post(app, **{"key": KEY, "headers": HEADERS, "body": body, "raises": Exception, **how})
        if isinstance(reply.raised, TwicesafeError):
            searched.error("reached the server", reply.raised)
        if reply.starts:
            searched.problem("asgi", reply)

    async def trial() -> None:
        probe = Probe(body=ANSWER.encode(), headers=((b"x-account", ANSWER.encode()),))
        for fault in [None, *FAULTS]:
            for raising in (None, Caused()):
                store = Failing(AsyncMemoryStore())
                app = IdempotencyMiddleware(
                    probe, store, scope=lambda scope: planted("user"), policy=policy, observer=searched
                )
                probe.raise_after = raising
                if fault is not None:
                    method, error, lost = fault
                    again = Caused() if isinstance(error, Caused) else by_a_driver(type(error)(*error.args))
                    store.fail(method, again, times=4, lost_reply=lost)
                for body in (BODY, BODY, BODY + "-another"):
                    await ask(app, body=body.encode()) if policy.header else await ask(app)
                await ask(app, key=KEY + "\x01")
                await ask(app, key=KEY * 20)
                await ask(app, key=f'"{KEY}')
                await ask(app, body=BODY.encode() * 50)
                await ask(app, body=f'{{"key": "{KEY}", "key": "{KEY}2"}}'.encode())
                await ask(app, body=f'{{"key": "{KEY}'.encode())
        lookup = AsyncKeyLookup(AsyncMemoryStore(), scope=lambda scope: planted("user"), closes=True, observer=searched)
        for method in ("GET", "DELETE", "GET"):
            await ask(lookup, method=method, body=b"")

    asyncio.run(trial())


def test_requests_under_wsgi(searched: Searched) -> None:
    """R21, R22: the same under a blocking shell, and in what a framework's own log says of an exception."""
    raising: list[Exception] = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if raising:
            raise raising[0]
        start_response("201 Created", [("Content-Type", "text/plain"), ("X-Account", ANSWER)])
        return [ANSWER.encode()]

    for policy in (Policy(), Policy(effects="keyed"), Policy(unknown_on_error=True), Policy(required=True)):
        safe = WsgiMiddleware(
            app, MemoryStore(), scope=lambda environ: planted("user"), policy=policy, observer=searched
        )
        for key, body, failing in [
            (KEY, BODY, True), (KEY, BODY, False), (KEY, BODY, False), (KEY, BODY + "2", False), (KEY * 9, BODY, False),
            ("", BODY, False),
        ]:  # fmt: skip
            raising[:] = [Caused()] if failing else []
            told: list[Any] = []
            environ = {
                "REQUEST_METHOD": "POST", "PATH_INFO": "/jobs", "SCRIPT_NAME": "", "QUERY_STRING": f"card={BODY}",
                "CONTENT_LENGTH": str(len(body)), "CONTENT_TYPE": "text/plain", "wsgi.input": io.BytesIO(body.encode()),
                "wsgi.errors": io.StringIO(), "wsgi.url_scheme": "http", "SERVER_NAME": "here", "SERVER_PORT": "80",
                "HTTP_AUTHORIZATION": planted("token"), "HTTP_IDEMPOTENCY_KEY": key,
            }  # fmt: skip
            with suppress(Caused):
                page = b"".join(safe(environ, lambda *arguments, told=told: told.append(arguments)))
                if dict(told[0][1]).get("content-type", "") == "application/problem+json":
                    searched.saw("problem document", page.decode())
            searched.saw("what the server is told", environ["wsgi.errors"].getvalue())  # type: ignore[attr-defined]


def test_requests_under_frameworks(searched: Searched) -> None:
    """R21, R22: FastAPI's and Flask's own answers to what is refused repeat neither key nor body."""
    app = fastapi.FastAPI()
    safe = Idempotency(app, AsyncMemoryStore(), scope=PUBLIC, observer=searched)

    @app.post("/charges")
    @safe.operation(effects="keyed", required=True)
    async def charge(card: str) -> str:
        if card.endswith("fails"):
            raise Caused
        return ANSWER

    async def trial() -> None:
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
            for card, key in [
                (BODY, KEY),
                (BODY, KEY),
                (BODY + "2", KEY),
                (BODY, KEY * 9),
                (BODY, ""),
                ("fails", KEY + "2"),
            ]:
                reply = await client.post("/charges", params={"card": card}, headers={"idempotency-key": key})
                if reply.headers["content-type"] == "application/problem+json":
                    searched.saw("FastAPI's problem document", reply.text)

    asyncio.run(trial())
    site = flask.Flask("shop")
    blocking = FlaskIdempotency(site, MemoryStore(), scope=lambda: "ada", observer=searched)

    @site.post("/charges")
    @blocking.operation(effects="keyed", required=True)
    def pay() -> str:
        return ANSWER

    client = site.test_client()
    for key, body in [(KEY, BODY), (KEY, BODY), (KEY, BODY + "2"), (KEY * 9, BODY), ("", BODY)]:
        got = client.post("/charges", data=body, headers={"Idempotency-Key": key})
        if got.content_type == "application/problem+json":
            searched.saw("Flask's problem document", got.text)


def test_the_gateway(searched: Searched) -> None:
    """R21, R22: an upstream that is away, or breaks off, and callers that are nobody: not a word of theirs is told."""

    async def trial(url: str) -> None:
        gateway = Gateway(url, AsyncMemoryStore(), caller=CallerHeader("X-User-Id"), observer=searched)
        for headers in ([*HEADERS, (b"x-user-id", planted("user").encode())], HEADERS):
            for body in (BODY, BODY + "2"):
                reply = await post(
                    gateway, key=KEY, headers=headers, body=body.encode(), query=BODY.encode(), raises=Exception
                )
                if isinstance(reply.raised, TwicesafeError):
                    searched.error("the gateway", reply.raised)
                searched.problem("the gateway", reply)

    asyncio.run(trial("http://127.0.0.1:1"))
    with closing(Service()) as service:
        service.script = lambda wire: wire.socket.close()
        asyncio.run(trial(service.url))
        assert service.connections > 0
    for address in (
        f"http://ada:{PASSWORD}@127.0.0.1:1",
        f"http://127.0.0.1:1/?code={PASSWORD}",
        f"ftp://{PASSWORD}@here",
    ):
        with pytest.raises(TwicesafeError) as refused:
            Gateway(address, AsyncMemoryStore(), caller=PUBLIC)
        searched.error("the gateway's settings", refused.value)
