"""What a storm with an outbox has beside: a consumer behind a proxy of its own, relays, and what arrived."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from twicesafe.errors import ConfigurationError, StoreUnavailableError
from twicesafe.outbox.operators import Messages, Waiting
from twicesafe.stores.connecting import without_password
from twicesafe.stores.urls import open_async_store, open_store
from twicesafe.storm.announcing import SUBJECT_HEADER, subject_of
from twicesafe.storm.consumer import DELIVERED
from twicesafe.storm.databases import ledger_in
from twicesafe.storm.delivery_plan import DELIVERY_FAULTS, DeliveryPlan
from twicesafe.storm.fleet import Fleet
from twicesafe.storm.ledger import Ledger
from twicesafe.storm.plan import WITH_OUTBOX, BlowKind, Fault
from twicesafe.storm.proxy import FaultProxy
from twicesafe.storm.settings import Standing

RELAYS: Final = 2
"""One goes on while the other is down."""
PATIENCE: Final = timedelta(seconds=90)
"""For how long nothing may move before what is left counts as not delivered: many leases, on a busy machine."""
LOOK: Final = 0.2
"""Seconds between two looks."""


class Delivery:
    """From the outbox in the store at `url` to the consumer, which `ledger` is of. `url` None: there is no outbox."""

    def __init__(
        self, url: str | None, consumer: Fleet, relays: Fleet | None, proxy: FaultProxy, ledger: Ledger
    ) -> None:
        self.consumer = consumer
        self.relays = relays
        self.port: Final = proxy.port
        """Where events go."""
        self._url = url
        self._proxy = proxy
        self._ledger = ledger

    def arm(self, run: str, plan: DeliveryPlan) -> None:
        """Let deliveries about the intents of `run` meet what the plan says."""
        for intent, faults in plan.items():
            self._proxy.expect(subject_of(run, intent), faults)

    async def drained(self, standing: Standing) -> int:
        """When all was delivered, or nobody can be expected to deliver it: how much was not.

        What is delivered late meets its faults as well: each strikes once, so that they come to an end by themselves.
        """
        if self._url is None:
            return 0
        standing.begin("delivering", left := await self._left())
        last = time.monotonic()
        # When nothing has moved for too long, the census says what that means.
        while left and time.monotonic() - last < PATIENCE.total_seconds():
            await asyncio.sleep(LOOK)
            before, left = left, await self._left()
            if left < before:
                last = time.monotonic()
                standing.done = max(standing.done, standing.total - left)
            elif time.monotonic() - last > PATIENCE.total_seconds() / 2:
                self._proxy.calm()  # a fault that cannot strike keeps nothing from being delivered
        return left

    async def _left(self) -> int:
        assert self._url is not None
        while True:
            try:
                found = await asyncio.to_thread(waiting_at, self._url)
            except StoreUnavailableError:
                await asyncio.sleep(LOOK)
            else:
                return found.pending + found.parked

    async def events(self, run: str) -> Mapping[int, Sequence[str]]:
        """What the consumer did: numbers of payments by intent."""
        return await self._ledger.payments(run)

    def struck(self) -> dict[str, int]:
        """What befell events, their consumer and the relays."""
        deaths = self.consumer.deaths + (Counter() if self.relays is None else self.relays.deaths)
        done = self._proxy.faults + self.consumer.deaths
        return {
            **{kind: deaths[kind] for kind in (*WITH_OUTBOX, Fault.KILL_AFTER_DELIVERY)},
            **{f"delivery_{fault}": done[fault] for fault in DELIVERY_FAULTS},
        }

    def remarks(self, events: Mapping[int, Sequence[str]]) -> Iterator[str]:
        """How the events came to their end."""
        effects = sum(map(len, events.values()))
        yield f"{self.consumer.noted[DELIVERED]} deliveries reached the consumer, which acted on {effects}"


def waiting_at(url: str) -> Waiting:
    """How much waits in the outbox there."""
    with closing(open_store(url)) as store:
        return Messages(store).waiting()


async def check_outbox(url: str) -> None:
    """ConfigurationError where messages wait in the outbox there: the storm's relays would take them."""
    found = await asyncio.to_thread(waiting_at, url)
    if found.pending or found.parked:
        raise ConfigurationError(
            f"the outbox in {without_password(url)} holds {found.pending + found.parked} messages that are not this "
            "storm's, and its relays would take them: give it a database of its own"
        )


@asynccontextmanager
async def delivering(url: str, folder: Path, log: Path, intents: int, *, naive: bool) -> AsyncIterator[Delivery]:
    """The consumer, serving, and relays from the outbox at `url` that are yet to be started."""
    if not naive:
        await check_outbox(url)
    proxy = FaultProxy(SUBJECT_HEADER)
    at = f"sqlite:///{folder / 'consumer.sqlite3'}"
    async with ledger_in(at) as ledger:
        await ledger.create()
        store = open_async_store(at)
        try:
            await store.apply_schema()
        finally:
            await store.aclose()
        told: dict[str, Any] = {"store": at, "naive": naive}
        consumer = Fleet(1, told, log, proxy.struck, kind="consumer", death=BlowKind.SIGKILL_CONSUMER)
        try:
            await consumer.start()
            await proxy.start(consumer.pick)
            relays = None
            if not naive:
                told = {"store": url, "port": proxy.port, "lives": max(15, intents // 8)}
                relays = Fleet(RELAYS, told, log, proxy.struck, kind="relay", death=BlowKind.SIGKILL_RELAY)
            yield Delivery(None if naive else url, consumer, relays, proxy, ledger)
        finally:
            await proxy.close()
            await consumer.close()
