"""The service in the storm: `POST /payments` writes one row into the ledger and answers with the payment's number.

It comes in two makes, both bare ASGI. The safe one stands behind twicesafe and writes in the store's transaction; the
naive one does what services without twicesafe do: write, commit, answer, and trust that nobody asks twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import uuid4

from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects
from twicesafe.errors import StoreUnavailableError
from twicesafe.incoming import ASGIScope, Message, Receive
from twicesafe.keyed import ASGIApp, Send
from twicesafe.stores.contract import AsyncStore
from twicesafe.storm.ledger import Ledger, Payment
from twicesafe.storm.ledger_downstream import DownstreamLedger
from twicesafe.storm.plan import FAULT_HEADER, Fault

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

KEYED_OPERATION: Final = Operation("storm-payment", OPERATION.policy.but(effects=Effects.KEYED))
"""Where the store shares no transaction with the ledger: every call to it carries a derived key."""

ACCOUNT_HEADER: Final = "storm-account"
"""Stands for authentication: who the caller is."""


class Sabotage(NamedTuple):
    """What the proxy ordered for this request."""

    fault: Fault | None
    key: str

    def die_at(self, point: Fault) -> None:
        """At the ordered point announce it and be gone, as by a power cut: nothing is closed or rolled back."""
        if self.fault is point:
            os.write(1, f"dying {point} {self.key}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


def safe_payments(ledger: Ledger, store: AsyncStore, slow: float) -> ASGIApp:
    """The service behind twicesafe. A slow handler takes `slow` seconds."""
    if isinstance(ledger, DownstreamLedger):
        return _keyed_payments(ledger, store, slow)

    async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
        payment = await _read(receive)
        try:
            number = await _pay(ledger, scope["twicesafe"].connection, payment, scope[_SABOTAGE], slow)
        except StoreUnavailableError:
            await _answer(send, 503, {})
        else:
            await _answer(send, 201, {"payment": number})

    return _sabotaged(IdempotencyMiddleware(serve, store, scope=_account, operation=OPERATION))


def _keyed_payments(ledger: DownstreamLedger, store: AsyncStore, slow: float) -> ASGIApp:
    async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
        payment = await _read(receive)
        sabotage: Sabotage = scope[_SABOTAGE]
        sabotage.die_at(Fault.KILL_AFTER_CLAIM)
        try:
            number = await ledger.pay(scope["twicesafe"].derived_key("pay"), uuid4().hex, payment)
        except StoreUnavailableError:
            await _answer(send, 503, {})
            return
        sabotage.die_at(Fault.KILL_AFTER_EFFECT)
        if sabotage.fault is Fault.SLOW_HANDLER:
            await asyncio.sleep(slow)
        await _answer(send, 201, {"payment": number})

    return _sabotaged(IdempotencyMiddleware(serve, store, scope=_account, operation=KEYED_OPERATION))


def naive_payments(ledger: Ledger, slow: float) -> ASGIApp:
    """The same service without twicesafe."""

    async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
        payment = await _read(receive)
        try:
            async with ledger.transaction() as connection:
                number = await _pay(ledger, connection, payment, scope[_SABOTAGE], slow)
        except StoreUnavailableError:
            await _answer(send, 503, {})
        else:
            await _answer(send, 201, {"payment": number})

    return _sabotaged(serve)


class ClientGoneError(ConnectionError):
    """The upload ended before the body was whole."""


_SABOTAGE: Final = "twicesafe.storm.sabotage"


async def _pay(ledger: Ledger, connection: Any, payment: Payment, sabotage: Sabotage, slow: float) -> str:
    """Write one payment on `connection`, inside whatever transaction it is in; returns the payment's number."""
    sabotage.die_at(Fault.KILL_AFTER_CLAIM)
    number = uuid4().hex
    await ledger.write(connection, number, payment)
    sabotage.die_at(Fault.KILL_AFTER_EFFECT)
    if sabotage.fault is Fault.SLOW_HANDLER:
        await asyncio.sleep(slow)
    return number


async def _read(receive: Receive) -> Payment:
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return Payment(**json.loads(body))


async def _answer(send: Send, status: int, content: dict[str, str]) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _account(scope: ASGIScope) -> str | None:
    return _header(scope, ACCOUNT_HEADER)


def _header(scope: ASGIScope, name: str) -> str | None:
    wanted = name.encode("ascii")
    return next((line.decode("ascii") for found, line in scope["headers"] if found == wanted), None)


def _sabotaged(app: ASGIApp) -> ASGIApp:
    """`app`, with what the proxy ordered in its scope; may die where the first byte of a success would leave."""

    async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
        name = _header(scope, FAULT_HEADER)
        sabotage = Sabotage(None if name is None else Fault(name), _header(scope, "idempotency-key") or "")
        scope[_SABOTAGE] = sabotage

        async def outward(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300:
                sabotage.die_at(Fault.KILL_AFTER_COMMIT)
            await send(message)

        with contextlib.suppress(ClientGoneError):
            await app(scope, receive, outward)

    return serve
