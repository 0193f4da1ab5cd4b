"""A service in the middle, between a caller that retries and a service that fails."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tests.client.bindings import NO_TLS, QUICK, Hours
from tests.client.scripted import answer, serving
from twicesafe.client import Budgets, Intent, Watch
from twicesafe.client.callers import Caller, CallerASGI, CallerWSGI, caller
from twicesafe.client.callers import serving as serving_a_caller
from twicesafe.client.httpx import asend, send

FIRST_OF_THREE = {"Twicesafe-Attempt": "1", "Twicesafe-Attempt-Limit": "3"}
SECOND = {"Twicesafe-Attempt": "2"}
ONLY = {"Twicesafe-Attempt": "1"}


def asked(headers: dict[str, str], *, leave: bool) -> int:
    """How often the last service is asked while one request with these headers is served."""
    with serving(*[answer(503)] * 9) as last, httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
        policy = QUICK.but(attempts=3, leave_to_caller=leave)
        with serving_a_caller(headers):
            send(client, Intent.new("POST", last.origin), policy=policy, budgets=Budgets(), ambient=Hours().ambient)
        hits = len(last.hits)
        last.unplayed.clear()
    return hits


@pytest.mark.parametrize(
    ("headers", "hits"),
    [
        pytest.param(SECOND, 1, id="it has tried before"),
        pytest.param(FIRST_OF_THREE, 1, id="it says that it will"),
        pytest.param(ONLY, 3, id="it may not"),
        pytest.param({}, 3, id="it says nothing"),
        pytest.param({"Twicesafe-Attempt": "²", "Twicesafe-Attempt-Limit": "x" * 5000}, 3, id="it says nonsense"),
    ],
)
def test_where_the_caller_retries_one_attempt_is_made(headers: dict[str, str], hits: int) -> None:
    """R40: three attempts of the caller over three of the middle are three, once the middle leaves them to it."""
    assert asked(headers, leave=True) == hits


def test_by_default_the_middle_retries_on_its_own() -> None:
    """R40: what a header of a stranger's says changes nothing unless the policy says so."""
    assert asked(SECOND, leave=False) == 3


def test_a_chain_of_services_makes_as_many_attempts_as_its_head() -> None:
    """R40, K: a caller of three attempts, an application of three in the middle: three hits, over ASGI."""

    async def main(origin: str) -> None:
        policy = QUICK.but(attempts=3, leave_to_caller=True)
        how: dict[str, Any] = {"budgets": Budgets(), "ambient": Hours().async_ambient}
        outward = httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(verify=NO_TLS))

        async def middle(scope: Any, receive: Any, send: Any) -> None:
            await asend(outward, Intent.new("POST", origin), policy=policy, **how)
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        async with outward, httpx2.AsyncClient(transport=httpx2.ASGITransport(app=CallerASGI(middle))) as head:
            watch = Watch(observer=lambda event: None)
            await asend(head, Intent.new("POST", "http://middle.example"), policy=policy, watch=watch, **how)

    with serving(*[answer(503)] * 3) as last:
        asyncio.run(main(last.origin))
        assert len(last.hits) == 3


def test_wsgi_applications_know_their_caller() -> None:
    """R40: while an application of WSGI is called, and no longer, what its caller said is known."""
    seen: list[Caller | None] = []

    def app(environ: Any, start_response: Any) -> Any:
        seen.append(caller())
        start_response("204 No Content", [])
        return []

    with httpx2.Client(transport=httpx2.WSGITransport(app=CallerWSGI(app))) as client:
        client.get("http://x.example", headers={"Twicesafe-Attempt": "2", "Twicesafe-Attempt-Limit": "4"})
        client.get("http://x.example")
    assert seen == [Caller(2, 4), None]
    assert caller() is None


def test_asgi_passes_on_what_is_no_request() -> None:
    """R40: a lifespan, or a websocket, is the application's as it was."""
    kinds: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        kinds.append(scope["type"])

    asyncio.run(CallerASGI(app)({"type": "lifespan"}, None, None))
    assert kinds == ["lifespan"]
