"""A user's clients, by both libraries and in both colours, for mypy --strict."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import httpx
import httpx2

from twicesafe.called import Call
from twicesafe.client import Contract, Intent, Outcome, Rejected, RetryPolicy, Succeeded, Unknown, report_of
from twicesafe.client.calls import AsyncCallTransport, CallTransport, Provider, calling, look_up_at
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, asend, send
from twicesafe.fastapi import KeyedRequest
from twicesafe.once import Unclear

intent = Intent.new("POST", "/charges", json={"cents": 500})
same_after_a_restart = Intent.derived("charge", "cart-17", url="/charges", contract=Contract.KEYED)
patient = RetryPolicy(attempts=6, deadline=timedelta(minutes=2))


def pay(client: httpx2.Client) -> int | None:
    """The outcome has three forms, and the response is the library's own."""
    outcome = send(client, intent, policy=patient)
    assert_type(outcome, Outcome[httpx2.Response])
    match outcome:
        case Succeeded(response=response):
            return response.status_code
        case Rejected(response=response):
            return response.status_code
        case Unknown():
            return None


def pay_by_httpx(client: httpx.Client) -> None:
    """The older library is served as well."""
    assert_type(send(client, intent, deadline=timedelta(seconds=5)), Outcome[httpx.Response])


async def pay_async(client: httpx2.AsyncClient, old: httpx.AsyncClient) -> None:
    """And so is asyncio."""
    assert_type(await asend(client, intent), Outcome[httpx2.Response])
    assert_type(await asend(old, client.build_request("GET", "/")), Outcome[httpx.Response])


def under_a_client() -> httpx2.Client:
    """A transport fits where the library wants one."""
    httpx2.AsyncClient(transport=AsyncRetryTransport(httpx2.AsyncHTTPTransport()))
    httpx.Client(transport=RetryTransport(httpx.HTTPTransport(), patient))
    return httpx2.Client(transport=RetryTransport(httpx2.HTTPTransport()))


stripe = Provider.of("stripe-v1", remembers=timedelta(hours=12))


def bound() -> httpx2.Client:
    """A transport that is bound to calls fits above another, in both libraries."""
    httpx.AsyncClient(transport=AsyncCallTransport(httpx.AsyncHTTPTransport(), stripe))
    return httpx2.Client(transport=CallTransport(RetryTransport(httpx2.HTTPTransport()), stripe, body_limit=1024))


def charged(client: httpx2.Client, keyed: KeyedRequest, at: Call) -> str:
    """A call gives what its function gives, and a handler's is named like one."""
    with calling(keyed, "charge", to=stripe) as key:
        assert_type(key, str)
    find = look_up_at(client, "/charges?key={key}", lambda response: Unclear())
    return at.call("charge", lambda key, cents: str(cents), 4200, to=stripe, look_up=find)


def key_of(error: Exception) -> str | None:
    """The key is on every error."""
    report = report_of(error)
    return None if report is None else report.key
