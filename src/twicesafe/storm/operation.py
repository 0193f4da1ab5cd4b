"""The payment of a storm as an operation of several steps: three local transactions and two calls to a provider.

    reserve   a row of ours
    charge    a call; the provider remembers its key for some time, and is not asked: what may have been charged longer
              ago is held, and the reconciler asks
    book      a row of ours, under the charge's number, and in a storm with an outbox the event that tells of it
    fee       a call; sent again only where the provider says that it did not charge it
    close     a row of ours, under the fee's number

So each intent is to leave one row in three ledgers of ours and one in each of two of the provider's.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final, cast
from uuid import uuid4

from twicesafe.called import AsyncCall
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects
from twicesafe.demo.provider.client import UNSENT, ProviderClient
from twicesafe.observe import Event
from twicesafe.once import AsyncOnce, current
from twicesafe.reconcile import Answered, AsyncReconcilers, Unclear, Unknown
from twicesafe.stores.contract import AsyncStore
from twicesafe.storm.announcing import Silent
from twicesafe.storm.ledger import Ledger, Payment
from twicesafe.storm.plan import Fault
from twicesafe.storm.provider_plan import Wanted
from twicesafe.storm.sabotage import SABOTAGE
from twicesafe.storm.started import say_noted

NAME: Final = "storm-order"

POLICY: Final = Policy(
    effects=Effects.RESUMABLE, required=True, lease=timedelta(seconds=3), wait=timedelta(milliseconds=200)
)

REMEMBERS: Final = timedelta(seconds=2)
"""For how long the provider is declared to recognise keys. Less than the lease: what is open when a server is killed
is never sent again, but asked about."""

WINDOW: Final = timedelta(seconds=10)
"""For how long it does recognise them: longer by what a call may be on its way, on a machine that is busy."""

FEE: Final = 25
"""Cents."""

COUNTED: Final = frozenset({"call.unknown", "outcome.settled"})
"""Events that the storm tells of."""


class Orders:
    """The operation as servers and workers know it, and the reconciler that asks the provider about it.

    A slow handler takes `slow` seconds.
    """

    def __init__(
        self, store: AsyncStore, ledger: Ledger, provider: ProviderClient, slow: float, announcer: Silent
    ) -> None:
        self._announcer = announcer
        self._ledger = ledger
        self._provider = provider
        self._slow = slow
        self.once = AsyncOnce(store, scope="storm", policy=POLICY, observer=_count)
        self.reconcilers = AsyncReconcilers(store, observer=_count)
        self.reconcilers.of(NAME)(self._find)
        declare = self.once.operation(key=_intents_key, scope=_callers_scope, name=NAME)
        self.pay = declare(self._pay)

    async def _pay(self, _key: str, run: str, intent: int, account: str, amount: str) -> str:
        """The charge's number."""
        at = cast("AsyncCall", current())
        sabotage = SABOTAGE.get()
        payment = Payment(run, intent, account, amount)
        sabotage.die_at(Fault.KILL_AFTER_CLAIM)
        await at.phase("reserve", self._write, uuid4().hex, payment._replace(run=reserved(run)))
        reference = Wanted(intent, "charge").reference(run)
        charge = await at.call("charge", self._charge, reference, cents(amount), remembers=REMEMBERS, unsent=UNSENT)
        await at.phase("book", self._book, charge, payment)
        reference = Wanted(intent, "fee").reference(run)
        fee = await at.call("fee", self._charge, reference, FEE, look_up=self._provider.find, unsent=UNSENT)
        await at.phase("close", self._write, fee, payment._replace(run=closed(run)))
        say_noted("finished")
        return charge

    # --- steps --------------------------------------------------------------------------------------------------------

    async def _write(self, connection: Any, number: str, payment: Payment) -> None:
        await self._ledger.write(connection, number, payment)

    async def _book(self, connection: Any, number: str, payment: Payment) -> None:
        sabotage = SABOTAGE.get()
        await self._ledger.write(connection, number, payment)
        if sabotage.fault is Fault.SLOW_HANDLER:
            await asyncio.sleep(self._slow)
        await self._announcer.add(connection, number, payment)
        sabotage.die_at(Fault.KILL_AFTER_EFFECT)

    async def _charge(self, key: str, reference: str, cents: int) -> str:
        sabotage = SABOTAGE.get()
        sabotage.die_at(Fault.KILL_BEFORE_SEND)
        number = await self._provider.charge(key, reference, cents)
        sabotage.die_at(Fault.KILL_AFTER_SEND)
        return number

    async def _find(self, unknown: Unknown) -> Answered:
        if unknown.call is None:
            return Unclear()
        return await self._provider.find(unknown.derived_key(unknown.call))


def _intents_key(key: str, *_payment: object) -> str:
    return key


def _callers_scope(_key: str, run: str, _intent: int, account: str, _amount: str) -> str:
    """A run's own, so that what is left of another on the same database is nobody's business here."""
    return scope_of(run, account)


def scope_of(run: str, account: str) -> str:
    """Whose keys these are."""
    return f"{run} {account}"


def cents(amount: str) -> int:
    """As the provider counts."""
    return round(float(amount) * 100)


def reserved(run: str) -> str:
    """The run under which the ledger of reservations is kept."""
    return f"{run}/reserved"


def closed(run: str) -> str:
    """The run under which the ledger of what was closed is kept."""
    return f"{run}/closed"


def _count(event: Event) -> None:
    if event.name in COUNTED:
        say_noted(event.name)
