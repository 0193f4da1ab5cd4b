"""Retries that a library keeps to itself, below this layer and without it: hits, counted, and as audited."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import httpx
import httpx2
import niquests
import pytest
import requests
import tenacity
from httpx_retries import Retry
from httpx_retries import RetryTransport as OtherTransport

from tests.client.bindings import NO_TLS, QUICK, Hours
from tests.client.scripted import answer, close_after_commit, reset_after_commit, serving
from twicesafe.client import Budgets, Intent, Rejected, Stop, Unknown
from twicesafe.client import aiohttp as aiohttp_binding
from twicesafe.client.audit import audit
from twicesafe.client.httpx import send
from twicesafe.client.requests import send as send_by_requests

THREE = QUICK.but(attempts=3)


def how() -> dict[str, Any]:
    return {"policy": THREE, "budgets": Budgets(), "ambient": Hours().ambient}


def test_a_hidden_retry_below_multiplies_and_one_layer_does_not() -> None:
    """R40, K: three attempts over three of another package are nine hits; without the other they are three."""
    with serving(*[answer(503)] * 12) as server:
        other = OtherTransport(
            httpx.HTTPTransport(verify=NO_TLS), retry=Retry(total=2, backoff_factor=0, allowed_methods=["POST"])
        )
        with httpx.Client(transport=other) as client:
            send(client, Intent.new("POST", server.origin, json=1), **how())
        assert [hit.attempt for hit in server.hits] == ["1"] * 3 + ["2"] * 3 + ["3"] * 3
        with httpx.Client(transport=httpx.HTTPTransport(verify=NO_TLS)) as client:
            send(client, Intent.new("POST", server.origin, json=1), **how())
        assert len(server.hits) == 12


@pytest.mark.parametrize("library", [httpx2, httpx], ids=lambda library: library.__name__)
def test_a_transport_that_retries_connections_sends_nothing_more_often(library: Any) -> None:
    """R40, K: HTTPTransport(retries=) below tries connections again, and hits are those of one layer."""
    with serving(*[reset_after_commit] * 3) as server:
        with library.Client(transport=library.HTTPTransport(verify=NO_TLS, retries=2)) as client:
            send(client, Intent.new("POST", server.origin, json=1), **how())
        assert len(server.hits) == 3


@pytest.mark.parametrize("library", [requests, niquests], ids=lambda library: library.__name__)
def test_an_adapters_own_retries_multiply_and_do_not_under_this_layer(library: Any) -> None:
    """R40, K: three rounds over an adapter of three are nine hits; `send()` by the same session makes three, as
    audited."""
    with serving(*[answer(503)] * 12) as server, library.Session() as session:
        # Each answers and closes, so that no connection is kept for the next.
        retry = library.adapters.Retry(2, status_forcelist=[503], allowed_methods=None, raise_on_status=False)
        session.mount("http://", library.adapters.HTTPAdapter(max_retries=retry))

        @tenacity.retry(stop=tenacity.stop_after_attempt(3), reraise=True)
        def pay() -> None:
            session.post(server.origin, data=b"1", headers={"Idempotency-Key": "one"}).raise_for_status()

        with pytest.raises(library.HTTPError):
            pay()
        assert len(server.hits) == 9
        assert [found.hits for found in audit(pay, session, policy=QUICK.but(attempts=1))] == [3, 9]
        outcome = send_by_requests(session, Intent.new("POST", server.origin, json=1), **how())
        assert [hit.attempt for hit in server.hits[9:]] == ["1", "2", "3"]
    assert isinstance(outcome, Rejected) or outcome.stop is Stop.ATTEMPTS


def test_aiohttps_hidden_attempt_doubles_hits_and_does_not_under_this_layer() -> None:
    """R40, K: three attempts become six hits, because aiohttp sends a PUT again whose connection ended; here it is
    three."""

    async def main(origin: str) -> None:
        async with aiohttp.ClientSession() as session:
            for _ in range(3):
                with pytest.raises(aiohttp.ServerDisconnectedError):
                    await session.put(origin, data=b"1")
            assert len(server.hits) == 6
            assert [found.hits for found in audit(session, policy=THREE)] == [6]
            request = aiohttp_binding.Request("PUT", origin, data=b"1")
            outcome = await aiohttp_binding.asend(session, request, **{**how(), "ambient": Hours().async_ambient})
            assert len(server.hits) == 9
        assert isinstance(outcome, Unknown)

    with serving(*[close_after_commit] * 9) as server:
        asyncio.run(main(server.origin))
