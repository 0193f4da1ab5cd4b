"""One server process of the storm. Its starter is storm/fleet.py."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from twicesafe.demo.provider.client import ProviderClient
from twicesafe.keyed import ASGIApp
from twicesafe.storm.announcing import ByHand, ByOutbox, Silent
from twicesafe.storm.databases import ledger_in
from twicesafe.storm.operation import Orders
from twicesafe.storm.orders import naive_orders, safe_orders
from twicesafe.storm.payments import naive_payments, safe_payments
from twicesafe.storm.reaching import reached
from twicesafe.storm.serving import serve_storm


def work(told: dict[str, Any]) -> None:
    """Serve until SIGTERM."""
    serve_storm(partial(_opened, told))


async def _opened(told: dict[str, Any], stack: AsyncExitStack) -> ASGIApp:
    ledger = await stack.enter_async_context(ledger_in(told["ledger"]))
    provider = None
    if told["provider"] is not None:
        provider = await stack.enter_async_context(ProviderClient(told["provider"]))
    if told["naive"]:
        by_hand = Silent() if told["events"] is None else ByHand(told["events"])
        if provider is None:
            return naive_payments(ledger, told["slow"], by_hand)
        return naive_orders(ledger, provider, by_hand)
    store = await stack.enter_async_context(reached(told["store"]))
    announcer = Silent() if told["events"] is None else ByOutbox(ledger)
    if provider is None:
        return safe_payments(ledger, store, told["slow"], announcer)
    return safe_orders(Orders(store, ledger, provider, told["slow"], announcer))
