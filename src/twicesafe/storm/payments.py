"""The service in the storm: `POST /payments` writes one row into the ledger and answers with the payment's number.

It comes in two makes, both bare ASGI. The safe one stands behind twicesafe and writes in the store's transaction; the
naive one does what services without twicesafe do: write, commit, answer, and trust that nobody asks twice.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects
from twicesafe.errors import StoreUnavailableError
from twicesafe.incoming import ASGIScope, Receive
from twicesafe.keyed import ASGIApp, Send
from twicesafe.stores.contract import AsyncStore
from twicesafe.storm.announcing import Silent
from twicesafe.storm.http import account, answer, read, sabotaged
from twicesafe.storm.ledger import Ledger, Payment
from twicesafe.storm.ledger_downstream import DownstreamLedger
from twicesafe.storm.plan import Fault
from twicesafe.storm.sabotage import SABOTAGE

OPERATION: Final = Operation(
    "storm-payment",
    Policy(
        effects=Effects.TRANSACTIONAL,
        required=True,
        lease=timedelta(seconds=5),
        wait=timedelta(milliseconds=200),
    ),
)
"""A duplicate waits a moment for the first attempt, which spares most of them a second's pause."""

CALL: Final = "pay"
"""The name of the one call that a keyed payment makes."""

KEYED_OPERATION: Final = Operation("storm-payment", OPERATION.policy.but(effects=Effects.KEYED))
"""Where the store shares no transaction with the ledger: every call to it carries a derived key."""


def safe_payments(ledger: Ledger, store: AsyncStore, slow: float, announcer: Silent) -> ASGIApp:
    """The service behind twicesafe. A slow handler takes `slow` seconds."""
    if isinstance(ledger, DownstreamLedger):
        return _keyed_payments(ledger, store, slow)

    async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
        payment = await read(receive)
        try:
            number = await _pay(ledger, scope["twicesafe"].connection, payment, announcer, slow)
        except StoreUnavailableError:
            await answer(send, 503, {})
        else:
            await answer(send, 201, {"payment": number})

    return sabotaged(IdempotencyMiddleware(serve, store, scope=account, operation=OPERATION))


def _keyed_payments(ledger: DownstreamLedger, store: AsyncStore, slow: float) -> ASGIApp:
    async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
        payment = await read(receive)
        sabotage = SABOTAGE.get()
        sabotage.die_at(Fault.KILL_AFTER_CLAIM)
        try:
            number = await ledger.pay(scope["twicesafe"].derived_key(CALL), uuid4().hex, payment)
        except StoreUnavailableError:
            await answer(send, 503, {})
            return
        sabotage.die_at(Fault.KILL_AFTER_EFFECT)
        if sabotage.fault is Fault.SLOW_HANDLER:
            await asyncio.sleep(slow)
        await answer(send, 201, {"payment": number})

    return sabotaged(IdempotencyMiddleware(serve, store, scope=account, operation=KEYED_OPERATION))


def naive_payments(ledger: Ledger, slow: float, announcer: Silent) -> ASGIApp:
    """The same service without twicesafe."""

    async def serve(_scope: ASGIScope, receive: Receive, send: Send) -> None:
        payment = await read(receive)
        try:
            async with ledger.transaction() as connection:
                number = await _pay(ledger, connection, payment, announcer, slow)
            await announcer.tell(number, payment)
        except StoreUnavailableError:
            await answer(send, 503, {})
        else:
            await answer(send, 201, {"payment": number})

    return sabotaged(serve)


async def _pay(ledger: Ledger, connection: Any, payment: Payment, announcer: Silent, slow: float) -> str:
    """Write one payment on `connection`, inside whatever transaction it is in; returns the payment's number."""
    sabotage = SABOTAGE.get()
    sabotage.die_at(Fault.KILL_AFTER_CLAIM)
    number = uuid4().hex
    await ledger.write(connection, number, payment)
    if sabotage.fault is Fault.SLOW_HANDLER:
        await asyncio.sleep(slow)
    # Last, because others who add to the same account wait from here to the commit.
    await announcer.add(connection, number, payment)
    sabotage.die_at(Fault.KILL_AFTER_EFFECT)
    return number
