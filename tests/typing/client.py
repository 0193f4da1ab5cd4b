"""A user of the client, for the type checkers: mypy runs over it with --strict, and nothing ever runs it."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import httpx
import httpx2

from twicesafe.client import Intent, Outcome, Rejected, Report, RetryPolicy, Sent, Succeeded, Unknown, report_of
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, asend, send

intent = Intent.new("POST", "/charges", json={"amount": 100})
again = Intent.derived("charge", 17, url="/charges", form={"amount": "100"})

with httpx2.Client(transport=RetryTransport(httpx2.HTTPTransport(), RetryPolicy(attempts=2))) as client:
    outcome = send(client, intent, deadline=timedelta(seconds=20))
    assert_type(outcome, Outcome[httpx2.Response])
    match outcome:
        case Succeeded(response=response):
            assert_type(response, httpx2.Response)
        case Rejected(response=response, key=key):
            assert_type(response, httpx2.Response)
            assert_type(key, str | None)
        case Unknown(response=answer, sent=sent, error=error):
            assert_type(answer, httpx2.Response | None)
            assert_type(sent, Sent)
            assert_type(error, BaseException | None)
    assert_type(outcome.raise_for_outcome(), httpx2.Response)
    assert_type(report_of(client.get("/")), Report | None)

with httpx.Client(transport=RetryTransport(httpx.HTTPTransport())) as older:
    assert_type(send(older, older.build_request("GET", "/")), Outcome[httpx.Response])


async def both() -> None:
    """The async twins."""
    async with httpx2.AsyncClient(transport=AsyncRetryTransport(httpx2.AsyncHTTPTransport())) as client:
        assert_type(await asend(client, intent), Outcome[httpx2.Response])
    async with httpx.AsyncClient() as older:
        assert_type((await asend(older, again)).raise_for_outcome(), httpx.Response)
