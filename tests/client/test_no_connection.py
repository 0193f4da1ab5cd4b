"""Connections that do not come about in time: nothing was sent, which is proved, whoever waits and however."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import httpx
import httpx2
import pytest

from tests.client.bindings import NO_TLS
from tests.client.scripted import drip, serving
from twicesafe.client import AsyncAmbient, Budgets, Contract, FailureKind, Intent, RetryPolicy, Sent, Stop, Unknown
from twicesafe.client.ambient import limit
from twicesafe.client.httpx import asend, send

HASTY = RetryPolicy(attempts=1, deadline=timedelta(seconds=9), attempt_timeout=timedelta(seconds=1))
ENDLESS: dict[str, Any] = {"timeout": None}
"""A client that would wait for ever."""

LATE = AsyncAmbient(limit=lambda seconds: limit(seconds + 60))
"""However busy the machine is, who interrupts an attempt comes after the pool, which is a tenth of a second before."""

by = pytest.mark.parametrize("library", [httpx2, httpx], ids=lambda library: library.__name__)
loops = pytest.mark.parametrize("loop", ["", "asyncio", "trio"], ids=["blocking", "asyncio", "trio"])


@contextmanager
def nobody_accepts() -> Iterator[str]:
    """A server whose queue is full: to connect takes for ever."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            for one in waiting:
                one.close()


def outcome_of(library: Any, loop: str, url: str, *, busy: bool = False) -> Any:
    """What comes of an operation that is never repeated; `busy`: of a client whose only connection is taken."""
    intent = Intent.new("POST", url, json=1, contract=Contract.NEVER)
    limits = library.Limits(max_connections=1)
    if not loop:
        with library.Client(transport=library.HTTPTransport(verify=NO_TLS, limits=limits), **ENDLESS) as client:
            taken = client.send(client.build_request("GET", url), stream=True) if busy else None
            outcome = send(client, intent, policy=HASTY, budgets=Budgets())
            if taken is not None:
                taken.close()
            return outcome

    async def story() -> Any:
        transport = library.AsyncHTTPTransport(verify=NO_TLS, limits=limits)
        async with library.AsyncClient(transport=transport, **ENDLESS) as client:
            taken = await client.send(client.build_request("GET", url), stream=True) if busy else None
            ambient = LATE if busy else AsyncAmbient()
            outcome = await asend(client, intent, policy=HASTY, budgets=Budgets(), ambient=ambient)
            if taken is not None:
                await taken.aclose()
            return outcome

    return anyio.run(partial(story), backend=loop)


@by
@loops
def test_who_cannot_connect_in_time_sent_nothing(library: Any, loop: str) -> None:
    """R39, R35: the time for an attempt clips connecting too, of a client that has no time-out of its own."""
    with nobody_accepts() as url:
        outcome = outcome_of(library, loop, url)
    assert isinstance(outcome, Unknown) and outcome.sent is Sent.NO
    assert (outcome.stop, outcome.attempts[0].failure) == (Stop.ATTEMPTS, FailureKind.TIMEOUT)
    assert isinstance(outcome.error, library.ConnectTimeout) and outcome.attempts[0].seconds < 30


@by
@loops
def test_who_waits_for_a_connection_in_vain_sent_nothing(library: Any, loop: str) -> None:
    """R39, R35: the pool says so, in time, also where the client would wait for it for ever."""
    with serving(drip) as server:
        outcome = outcome_of(library, loop, server.origin, busy=True)
        assert [hit.method for hit in server.hits] == ["GET"]
    assert isinstance(outcome, Unknown) and outcome.sent is Sent.NO
    assert isinstance(outcome.error, library.PoolTimeout) and outcome.attempts[0].seconds < 30
