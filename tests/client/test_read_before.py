"""Responses that a hook of the client's, or a layer below, has read: their connection may be another's by now."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import httpx
import httpx2
import pytest

from tests.client.bindings import NO_TLS, QUICK, Binding, Hours
from tests.client.scripted import Act, answer, serving
from twicesafe.client import Intent, Succeeded, Unknown, report_of
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport

REUSED = {"type": "urn:twicesafe:problem:key-reused", "status": 422}
PACKED = gzip.compress(json.dumps(REUSED).encode())
LIBRARIES = pytest.mark.parametrize("library", [httpx2, httpx], ids=lambda library: library.__name__)


def reused(*, packed: bool) -> Act:
    """A problem document, in the clear or with a content coding."""
    if packed:
        return answer(422, "Content-Type: application/problem+json", "Content-Encoding: gzip", body=PACKED)
    return answer(422, json_=REUSED, kind="application/problem+json")


def reading(binding: Binding) -> dict[str, Any]:
    """A client's options, with a hook that reads each response."""

    def read(response: Any) -> None:
        response.read()

    async def aread(response: Any) -> None:
        await response.aread()

    return {"event_hooks": {"response": [aread if binding.asynchronous else read]}}


def test_a_hook_may_read_the_answer(httpx_typed: Binding) -> None:
    """I8, K: a success that a hook has logged is one: nobody reads from its connection again, and nobody retries."""
    with serving(answer(201, json_={"charge": 1})) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = httpx_typed.perform(lambda client: intent, Hours(), QUICK, **reading(httpx_typed))
        assert len(server.hits) == 1
    assert isinstance(result.outcome, Succeeded) and result.response.json() == {"charge": 1}


@pytest.mark.parametrize("packed", [False, True])
def test_what_a_hook_has_read_is_judged(httpx_typed: Binding, packed: bool) -> None:
    """R37: the problem document is read, decoded once: that the key was used is no refusal."""
    with serving(reused(packed=packed)) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = httpx_typed.perform(lambda client: intent, Hours(), QUICK, **reading(httpx_typed))
        assert len(server.hits) == 1
    assert isinstance(result.outcome, Unknown) and result.response.json() == REUSED
    assert result.report.attempts[0].reason == "422 key reused"


@pytest.mark.parametrize("packed", [False, True])
@LIBRARIES
def test_a_layer_below_may_read_the_answer(library: Any, packed: bool) -> None:
    """R37: a transport that logs bodies hands over a response that was read: it is judged as it is."""

    class Reading(library.HTTPTransport):
        def handle_request(self, request: Any) -> Any:
            response = super().handle_request(request)
            response.read()
            return response

    class AsyncReading(library.AsyncHTTPTransport):
        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            await response.aread()
            return response

    async def apost(url: str) -> Any:
        transport = AsyncRetryTransport(AsyncReading(verify=NO_TLS), QUICK)
        async with library.AsyncClient(transport=transport) as client:
            return await client.post(url, headers={"Idempotency-Key": "k-1"})

    with serving(reused(packed=packed), reused(packed=packed)) as server:
        with library.Client(transport=RetryTransport(Reading(verify=NO_TLS), QUICK)) as client:
            blocking = client.post(server.origin, headers={"Idempotency-Key": "k-1"})
        responses = [blocking, asyncio.run(apost(server.origin))]
        assert len(server.hits) == 2
    for response in responses:
        assert response.json() == REUSED
        assert [attempt.reason for attempt in report_of(response).attempts] == ["422 key reused"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_hook_may_throw_the_answer_away(httpx_typed: Binding, begun: bool) -> None:
    """R35: a body that a hook has begun to read, or closed, is gone, as the library says: nothing is sent again for it,
    and its connection is given back."""

    def throw_away(response: Any) -> None:
        seen.append(response)
        if begun:
            next(response.iter_raw())
        else:
            response.close()

    async def athrow_away(response: Any) -> None:
        seen.append(response)
        if begun:
            await anext(response.aiter_raw())
        else:
            await response.aclose()

    seen: list[Any] = []
    hooks = {"response": [athrow_away if httpx_typed.asynchronous else throw_away]}
    with serving(answer(402, json_={"why": "declined"})) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = httpx_typed.perform(lambda client: intent, Hours(), QUICK, event_hooks=hooks)
        assert len(server.hits) == 1
    assert isinstance(result.error, httpx_typed.library.StreamError) and result.report.key == intent.key
    assert seen[0].is_closed
