"""A process that makes a call, to be killed in it: python -m tests.client.caller FILE ORIGIN VENDOR."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2

from tests.client.bindings import NO_TLS
from tests.client.calling import CHARGE, id_of
from twicesafe.client.calls import CallTransport, Provider
from twicesafe.once import Once, current
from twicesafe.stores.sqlite import SqliteStore


def operation(once: Once, client: Any, provider: Provider) -> Callable[[str], str]:
    """An operation whose second step is a call."""

    def reserve(connection: Any, order: str) -> int:
        return len(order)

    def charge(key: str) -> str:
        return id_of(client.request(**CHARGE))

    @once.operation(key=lambda order: order, name="buy", effects="resumable")
    def buy(order: str) -> str:
        at = current()
        at.phase("reserve", reserve, order)
        return at.call("charge", charge, to=provider)

    return buy


def bound(origin: str, provider: Provider) -> Any:
    """A client of the provider's."""
    transport = CallTransport(httpx2.HTTPTransport(verify=NO_TLS), provider)
    return httpx2.Client(transport=transport, base_url=origin, timeout=60)


def provider_of(profile: str) -> Provider:
    """The vendor, whose memory is known to be an hour."""
    return Provider.of(profile, remembers=timedelta(hours=1))


if __name__ == "__main__":
    file, origin, profile = sys.argv[1:]
    provider = provider_of(profile)
    operation(Once(SqliteStore(file), scope="shop"), bound(origin, provider), provider)("order-1")
