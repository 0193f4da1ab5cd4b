"""How a service calls the provider, under asyncio."""

from __future__ import annotations

from typing import Final

import httpx2

from twicesafe.declared import Answered, Done, NotDone, Unclear

TIMEOUT: Final = 2.0
"""Seconds for one step of an exchange: less than a slow charge takes."""


class TooManyError(Exception):
    """The provider says that it was asked too often, and did nothing."""


class ProviderError(Exception):
    """The provider's answer says nothing of what it did."""


UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, TooManyError)
"""What proves that nothing was charged."""

FAILURES: Final = (httpx2.HTTPError, TooManyError, ProviderError)
"""All that a call may come to."""


class ProviderClient:
    """Calls the provider on this port of 127.0.0.1. An async context manager."""

    def __init__(self, port: int) -> None:
        self._client = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            timeout=TIMEOUT,
            limits=httpx2.Limits(max_connections=None),
            trust_env=False,
            verify=False,
        )

    async def __aenter__(self) -> ProviderClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.aclose()

    async def charge(self, key: str, reference: str, cents: int) -> str:
        """The number of the charge that stands under `key`."""
        order = {"reference": reference, "amount": cents}
        answer = await self._client.post("/charges", json=order, headers={"Idempotency-Key": key})
        if answer.status_code == httpx2.codes.TOO_MANY_REQUESTS:
            raise TooManyError
        if answer.status_code != httpx2.codes.CREATED:
            raise ProviderError(f"the provider answered {answer.status_code}")
        return str(answer.json()["charge"])

    async def find(self, key: str, *_order: object) -> Answered:
        """What became of the charge under `key`."""
        answer = await self._client.get("/charges", params={"key": key})
        if answer.status_code != httpx2.codes.OK:
            raise ProviderError(f"the provider answered {answer.status_code}")
        found = answer.json()
        if found["charges"]:
            return Done(found["charges"][0]["charge"])
        return Unclear() if found["in_progress"] else NotDone()
