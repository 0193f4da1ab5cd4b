"""A user of requests, niquests and aiohttp, for the type checkers: mypy runs over it with --strict."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import aiohttp
import niquests
import requests

from twicesafe.client import Contract, Intent, Outcome, RetryPolicy, Succeeded
from twicesafe.client.aiohttp import Request, RetryMiddleware, asend
from twicesafe.client.requests import RetryAdapter, send

intent = Intent.new("POST", "https://pay.example/charges", json={"amount": 100})

with requests.Session() as session:
    session.mount("https://", RetryAdapter(requests.adapters.HTTPAdapter(), RetryPolicy(attempts=2)))
    outcome = send(session, intent, deadline=timedelta(seconds=20), timeout=(3.05, 10))
    assert_type(outcome, Outcome[requests.Response])
    match outcome:
        case Succeeded(response=response):
            assert_type(response, requests.Response)
    found = requests.Request("POST", "https://pay.example/search", json={"q": "tea"})
    assert_type(send(session, found, contract=Contract.SAFE).raise_for_outcome(), requests.Response)

with niquests.Session() as other:
    other.mount("https://", RetryAdapter(niquests.adapters.HTTPAdapter()))
    assert_type(send(other, intent), Outcome[niquests.Response])


async def charge() -> None:
    """aiohttp's."""
    async with aiohttp.ClientSession(middlewares=[RetryMiddleware(contract=Contract.SAFE)]) as session:
        assert_type(await asend(session, intent), Outcome[aiohttp.ClientResponse])
        outcome = await asend(session, Request("PUT", "https://pay.example/carts/1", json={"tea": 2}))
        assert_type(outcome.raise_for_outcome(), aiohttp.ClientResponse)
