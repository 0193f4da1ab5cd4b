"""A user's clients, by both libraries and in both colours, for mypy --strict."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import httpx
import httpx2

from twicesafe.client import Contract, Intent, Outcome, Rejected, RetryPolicy, Succeeded, Unknown, report_of
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, asend, send

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


def key_of(error: Exception) -> str | None:
    """The key is on every error."""
    report = report_of(error)
    return None if report is None else report.key
