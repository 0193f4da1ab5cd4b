"""The service in a storm of operations of several steps: the same `POST /payments`, with a provider behind it."""

from __future__ import annotations

from uuid import uuid4

from twicesafe.demo.provider.client import FAILURES, ProviderClient
from twicesafe.errors import CallRefusedError, HeldError, RequestError, StoreError
from twicesafe.incoming import ASGIScope, Receive
from twicesafe.keyed import ASGIApp, Send
from twicesafe.storm.announcing import Silent
from twicesafe.storm.http import answer, header, read, sabotaged
from twicesafe.storm.ledger import Ledger
from twicesafe.storm.operation import FEE, POLICY, Orders, cents, closed, reserved
from twicesafe.storm.plan import Fault
from twicesafe.storm.provider_plan import Wanted
from twicesafe.storm.sabotage import SABOTAGE


def safe_orders(orders: Orders) -> ASGIApp:
    """The service with its operation under twicesafe."""

    async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
        payment = await read(receive)
        try:
            number = await orders.pay(header(scope, "idempotency-key") or "", *payment)
        except RequestError as error:
            await _problem(send, error.problem)
        except HeldError:
            await _problem(send, "outcome-unknown")
        except (CallRefusedError, StoreError, *FAILURES):
            # It broke off, and what was done stands: neither a refusal nor a success.
            await answer(send, 500, {})
        else:
            await answer(send, 201, {"payment": number})

    return sabotaged(serve)


async def _problem(send: Send, kind: str) -> None:
    status, headers, body = POLICY.problem(kind, retry_after=1)
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


def naive_orders(ledger: Ledger, provider: ProviderClient, announcer: Silent) -> ASGIApp:
    """The same service without twicesafe: each request does everything anew, under new keys."""

    async def serve(_scope: ASGIScope, receive: Receive, send: Send) -> None:
        payment = await read(receive)
        run, intent = payment.run, payment.intent
        sabotage = SABOTAGE.get()
        sabotage.die_at(Fault.KILL_AFTER_CLAIM)
        try:
            async with ledger.transaction() as connection:
                await ledger.write(connection, uuid4().hex, payment._replace(run=reserved(run)))
            sabotage.die_at(Fault.KILL_BEFORE_SEND)
            charge = await provider.charge(uuid4().hex, Wanted(intent, "charge").reference(run), cents(payment.amount))
            sabotage.die_at(Fault.KILL_AFTER_SEND)
            async with ledger.transaction() as connection:
                await ledger.write(connection, charge, payment)
            await announcer.tell(charge, payment)
            sabotage.die_at(Fault.KILL_AFTER_EFFECT)
            fee = await provider.charge(uuid4().hex, Wanted(intent, "fee").reference(run), FEE)
            async with ledger.transaction() as connection:
                await ledger.write(connection, fee, payment._replace(run=closed(run)))
        except (StoreError, *FAILURES):
            await answer(send, 500, {})
        else:
            await answer(send, 201, {"payment": charge})

    return sabotaged(serve)
