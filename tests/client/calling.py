"""An operation that calls a provider by a bound client: httpx2 and httpx, blocking and under asyncio."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import httpx
import httpx2

from tests.client.bindings import NO_TLS
from tests.client.scripted import Act, Exchange, Hit, answer
from twicesafe.client.calls import AsyncCallTransport, CallTransport, Provider
from twicesafe.once import AsyncOnce, Once, current
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.testing import ManualClock

WINDOW = timedelta(hours=1)
K = "order-77"

CHARGE = {"method": "POST", "url": "/charges", "json": {"cents": 4200}}


def id_of(response: Any) -> str:
    """What a careful caller makes of an answer."""
    found: str = response.raise_for_status().json()["id"]
    return found


def careless(response: Any) -> str:
    """What one makes of it who looks at no status."""
    return f"got {response.status_code}"


class Shop:
    """What outlives a process: the store, and its clock. `given` are the keys that calls were given."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.records = MemoryStore(clock=self.clock)
        self.given: list[str] = []

    def later(self, by: timedelta = timedelta(seconds=1)) -> None:
        """Let the store's time pass."""
        self.clock.advance(by)


class Way(NamedTuple):
    """One of the four."""

    library: Any
    asynchronous: bool

    @property
    def name(self) -> str:
        return f"{self.library.__name__}-{'async' if self.asynchronous else 'sync'}"

    def buy(
        self,
        shop: Shop,
        provider: Provider,
        origin: str,
        *requests: dict[str, Any],
        read: Callable[[Any], str] = id_of,
        below: Callable[[Any], Any] = lambda transport: transport,
        look_up: Callable[[Any], Any] | None = None,
        client: dict[str, Any] | None = None,
        **call: Any,
    ) -> str:
        """One attempt, in a process of its own as it were: an operation whose one call makes `requests`, one by one."""
        options = {"base_url": origin, **(client or {})}
        asked = requests or (CHARGE,)
        given = self._abuy if self.asynchronous else self._buy
        bought = given(shop, provider, asked, read, below, look_up, options, call)
        return asyncio.run(bought) if self.asynchronous else bought

    def _buy(
        self, shop: Shop, provider: Any, asked: Any, read: Any, below: Any, look_up: Any, options: Any, call: Any
    ) -> Any:
        once = Once(shop.records, scope="shop", observer=lambda event: None)
        transport = CallTransport(below(self.library.HTTPTransport(verify=NO_TLS)), provider)
        with self.library.Client(transport=transport, **options) as client:
            if look_up is not None:
                call["look_up"] = look_up(client)

            def charge(key: str) -> str:
                shop.given.append(key)
                for request in asked:
                    response = client.request(**request)
                return str(read(response))

            @once.operation(key=lambda: K, name="buy", effects="resumable")
            def buy() -> str:
                return current().call("charge", charge, **{"to": provider, **call})

            return buy()

    async def _abuy(
        self, shop: Shop, provider: Any, asked: Any, read: Any, below: Any, look_up: Any, options: Any, call: Any
    ) -> Any:
        once = AsyncOnce(AsyncMemoryStore(shop.records), scope="shop", observer=lambda event: None)
        transport = AsyncCallTransport(below(self.library.AsyncHTTPTransport(verify=NO_TLS)), provider)
        async with self.library.AsyncClient(transport=transport, **options) as client:
            if look_up is not None:
                call["look_up"] = look_up(client)

            async def charge(key: str) -> str:
                shop.given.append(key)
                for request in asked:
                    response = await client.request(**request)
                return str(read(response))

            @once.operation(key=lambda: K, name="buy", effects="resumable")
            async def buy() -> str:
                return await current().call("charge", charge, **{"to": provider, **call})

            return await buy()


WAYS = [Way(library, asynchronous) for library in (httpx2, httpx) for asynchronous in (False, True)]


class Vendor:
    """A provider that charges once per key, wherever its keys stand, and gives the first answer again."""

    def __init__(self, profile: str, **changes: Any) -> None:
        self.provider = Provider.of(profile, **{"remembers": WINDOW, **changes})
        self.charges: dict[str, bytes] = {}

    def key_of(self, hit: Hit) -> str:
        """The key that a request carries."""
        if self.provider.member:
            key = json.loads(hit.body)[self.provider.member]
        else:
            key = hit.header(self.provider.header.lower())
        assert isinstance(key, str)
        return key

    def charge(self, exchange: Exchange) -> None:
        """An act: charge, or replay."""
        self._charged(exchange)

    def charge_and_lose(self, exchange: Exchange) -> None:
        """An act: charge, and break off before the answer."""
        self._charged(_Mute(exchange))

    def _charged(self, exchange: Any) -> None:
        read = exchange.read

        def charged() -> Hit:
            hit: Hit = read()
            key = self.key_of(hit)
            replayed.append(key in self.charges)
            self.charges.setdefault(key, hit.body)
            return hit

        replayed: list[bool] = []
        exchange.read = charged
        act: Act = answer(201, json_={"id": f"ch_{len(self.charges) or 1}"})
        act(exchange)


class _Mute:
    """An exchange whose answers are lost."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.head, self.read = exchange.head, exchange.read

    def send(self, data: bytes) -> None:
        self._exchange.reset()
