"""A file of intents and the ways to send them: by every library, blocking, under asyncio and under trio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import httpx
import httpx2
import requests
import trio

from tests.client.bindings import NO_TLS, QUICK, Hours
from twicesafe.client import AsyncIntentStore, Budgets, Intent, IntentStore, Outcome, Reserved
from twicesafe.client import aiohttp as by_aiohttp
from twicesafe.client import httpx as by_httpx
from twicesafe.client import requests as by_requests
from twicesafe.testing import ManualClock

ONCE = QUICK.but(attempts=1)


class Way(NamedTuple):
    """One of them: what runs it, the client it opens, and what sends by that."""

    name: str
    run: Callable[..., Any] | None
    """What runs a coroutine; None where it blocks."""
    client: Callable[[dict[str, str]], Any]
    by: Callable[..., Any]


def in_asyncio(work: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> Any:
    """As trio.run takes it."""
    return asyncio.run(work(*given))


def _httpx(library: Any) -> Callable[[dict[str, str]], Any]:
    return lambda headers: library.Client(transport=library.HTTPTransport(verify=NO_TLS), headers=headers)


def _async_httpx(library: Any) -> Callable[[dict[str, str]], Any]:
    return lambda headers: library.AsyncClient(transport=library.AsyncHTTPTransport(verify=NO_TLS), headers=headers)


def _session(headers: dict[str, str]) -> Any:
    session = requests.Session()
    session.headers.update(headers)
    return session


def _aiohttp(headers: dict[str, str]) -> Any:
    return aiohttp.ClientSession(headers=headers)


WAYS = [
    Way("httpx2", None, _httpx(httpx2), by_httpx.send),
    Way("httpx2-asyncio", in_asyncio, _async_httpx(httpx2), by_httpx.asend),
    Way("httpx-trio", trio.run, _async_httpx(httpx), by_httpx.asend),
    Way("requests", None, _session, by_requests.send),
    Way("aiohttp", in_asyncio, _aiohttp, by_aiohttp.asend),
]


class Desk:
    """Whoever reserves and sends. Nothing is kept between two calls but the file, as after a restart."""

    def __init__(self, file: Path, way: Way = WAYS[0], **store: Any) -> None:
        self.file = file
        self.way = way
        self.clock = ManualClock()
        self.hours = Hours()
        self._store = {"clock": self.clock, **store}

    @property
    def store(self) -> IntentStore:
        """The file, opened anew."""
        return IntentStore(self.file, **self._store)

    def reserve(self, name: str, intent: Intent, **how: Any) -> Reserved:
        if self.way.run is None:
            return self.store.reserve(name, intent, **how)
        reserved: Reserved = self.way.run(self._areserve, name, intent, how)
        return reserved

    async def _areserve(self, name: str, intent: Intent, how: dict[str, Any]) -> Reserved:
        return await AsyncIntentStore(self.file, **self._store).reserve(name, intent, **how)

    def send(self, reserved: Reserved, headers: dict[str, str] | None = None, **how: Any) -> Outcome[Any]:
        """By a new client, which has these headers."""
        how = {"policy": ONCE, "budgets": Budgets(), "by": self.way.by, **how}
        if self.way.run is None:
            with self.way.client(headers or {}) as client:
                return self.store.send(client, reserved, **{"ambient": self.hours.ambient, **how})
        outcome: Outcome[Any] = self.way.run(self._asend, reserved, headers or {}, how)
        return outcome

    async def _asend(self, reserved: Reserved, headers: dict[str, str], how: dict[str, Any]) -> Outcome[Any]:
        async with self.way.client(headers) as client:
            store = AsyncIntentStore(self.file, **self._store)
            return await store.send(client, reserved, **{"ambient": self.hours.async_ambient, **how})

    def send_past_the_file(self, reserved: Reserved) -> Any:
        """By the binding's own `send`."""
        if self.way.run is None:
            with self.way.client({}) as client:
                return self.way.by(client, reserved)

        async def past() -> Any:
            async with self.way.client({}) as client:
                return await self.way.by(client, reserved)

        return self.way.run(past)

    def standing(self, name: str) -> str:
        """What became of it, as the file says."""
        found = self.store.find(name)
        assert found is not None
        return str(found.standing)


def called(act: Callable[[], object]) -> Callable[..., Any]:
    """A `by` that does something in the place of sending."""

    def by(client: Any, intent: Intent, **how: Any) -> Any:
        return act()

    return by
