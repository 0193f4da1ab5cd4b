"""A user of intents that outlive their process, for the type checkers: mypy runs over it with --strict."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import httpx
import httpx2

from twicesafe.client import AsyncIntentStore, Intent, IntentStore, Outcome, Reserved, RetryPolicy, Standing
from twicesafe.client.httpx import asend, send

intent = Intent.new("POST", "https://pay.example/charges", json={"amount": 100})

intents = IntentStore("intents.db", policy=RetryPolicy(attempts=2))
charge = intents.reserve("charge of cart 17", intent, remembers=timedelta(hours=24))
assert_type(charge, Reserved)
assert_type(charge.standing, Standing)
assert_type(intents.find("charge of cart 17"), Reserved | None)
with httpx2.Client() as client:
    outcome = intents.send(client, charge, by=send, deadline=timedelta(seconds=20), follow_redirects=True)
    assert_type(outcome, Outcome[httpx2.Response])
with httpx.Client() as older:
    assert_type(intents.send(older, charge, by=send), Outcome[httpx.Response])


async def both() -> None:
    """The async twin."""
    intents = AsyncIntentStore("intents.db")
    charge = await intents.reserve("charge of cart 17", intent, remembers=timedelta(hours=24))
    async with httpx2.AsyncClient() as client:
        assert_type(await intents.send(client, charge, by=asend), Outcome[httpx2.Response])
