"""What nobody waits for is counted: relays, inboxes, reconcilers, reapers and the worker around them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.telemetry.recorded import Recorded, recording
from twicesafe.core.policy import Policy
from twicesafe.errors import RefusedError, StoreUnavailableError
from twicesafe.inbox import AsyncInbox, Inbox
from twicesafe.observe import Event
from twicesafe.once import AsyncOnce, Once
from twicesafe.opentelemetry import FRESH
from twicesafe.outbox import DeliveryPolicy, Message, Outbox, Poison
from twicesafe.outbox.relay import Relay
from twicesafe.reaper import AsyncReaper, Reaper
from twicesafe.reconcile import AsyncReconcilers, Done, NotDone, Reconcilers, Unclear
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import ManualClock
from twicesafe.worker import Worker

INSTANT = timedelta(microseconds=1)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A database with the tables."""
    where = tmp_path / "shop.db"
    with closing(SqliteStore(where)) as store:
        store.apply_schema()
    return where


def add(where: Path, *aggregates: str, outbox: Outbox | None = None) -> list[str]:
    """Commit a message for each."""
    with closing(sqlite3.connect(where, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        made = outbox or Outbox("/orders")
        ids = [made.add(connection, "order.placed", ("order", one), {"total": 42}).id for one in aggregates]
        connection.execute("COMMIT")
    return ids


def relay(where: Path, publish: Any, rounds: int = 1, **how: Any) -> None:
    """Some rounds of a relay."""

    async def trial() -> None:
        store = AsyncSqliteStore(where)
        made = Relay(store, publish, **how)
        try:
            for _ in range(rounds):
                await made.run_once()
        finally:
            await made.aclose()
            await store.aclose()

    asyncio.run(trial())


class Receiver:
    """Takes what it is not told to refuse."""

    def __init__(self, **failing: Exception) -> None:
        self.failing = failing
        self.arrived: list[Message] = []

    async def publish(self, message: Message) -> None:
        if message.aggregateid in self.failing:
            raise self.failing[message.aggregateid]
        self.arrived.append(message)


class Many(Receiver):
    """The same, several at a time."""

    async def publish_many(self, messages: list[Message]) -> list[BaseException | None]:
        return list(await asyncio.gather(*map(self.publish, messages), return_exceptions=True))


@pytest.mark.parametrize("kind", [Receiver, Many])
@pytest.mark.parametrize("poison", [Poison.PARK, Poison.SKIP])
def test_what_a_relay_does_is_counted(
    recorded: Recorded, shop: Path, kind: Callable[..., Receiver], poison: Poison
) -> None:
    """R28, R44: delivered, failed and set aside, each by the message's type; the dead letter is loud."""
    add(shop, "a", "b", "c", "b")
    receiver = kind(b=RefusedError("no such queue"), c=ConnectionError("secret"))
    policy = DeliveryPolicy(first_delay=timedelta(hours=1), longest_delay=timedelta(hours=1), poison=poison)
    relay(shop, receiver, observer=recorded, policy=policy)
    assert [message.aggregateid for message in receiver.arrived] == ["a"]
    fate = "parked" if poison is Poison.PARK else "skipped"
    found = recorded.numbers("twicesafe.outbox.messages", "cloudevents.event_type", "twicesafe.result")
    assert found == {("order.placed", "delivered"): 1, ("order.placed", fate): 1, ("order.placed", "failed"): 1}
    assert recorded.numbers("twicesafe.events", "twicesafe.event") == {f"message.{fate}": 1}


def test_how_much_waits_can_be_alarmed_on(shop: Path) -> None:
    """R44: pending and parked messages, and the age of the oldest; a relay that has died says nothing any more."""
    now = 0.0
    with recording(clock=lambda: now) as recorded:
        add(shop, "a", "b")
        policy = DeliveryPolicy(attempts=1, first_delay=timedelta(hours=1), longest_delay=timedelta(hours=1))
        relay(shop, Receiver(a=RefusedError("never")), observer=recorded, policy=policy)
        add(shop, "c")
        relay(shop, Receiver(c=ConnectionError()), observer=recorded, policy=policy.__class__(poison=Poison.BLOCK))
        assert recorded.numbers("twicesafe.outbox.parked") == {(): 1}
        assert recorded.numbers("twicesafe.outbox.pending") == {(): 1}
        (lag,) = recorded.numbers("twicesafe.outbox.lag").values()
        assert 0 < lag < 3600
        now = FRESH
        assert recorded.numbers("twicesafe.outbox.pending") == {}
        assert recorded.numbers("twicesafe.outbox.lag") == {}


def test_an_empty_outbox_has_no_lag(recorded: Recorded, shop: Path) -> None:
    """R44: nothing waits: the gauges say 0, so that an alarm that began ends."""
    relay(shop, Receiver(), observer=recorded)
    assert recorded.numbers("twicesafe.outbox.pending") == {(): 0}
    assert recorded.numbers("twicesafe.outbox.lag") == {(): 0}


def test_duplicates_that_come_in_are_counted(recorded: Recorded, shop: Path) -> None:
    """R29, R44: handled once, and a duplicate for each further delivery, by blocking calls and under asyncio."""
    message = Message("m-0123456789", "/orders", "order.placed", "order", "o-1", b"{}")
    blocking = Inbox("billing", observer=recorded)
    with closing(sqlite3.connect(shop, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        assert [blocking.once(connection, message) for _ in range(3)] == [True, False, False]
        connection.execute("COMMIT")

    async def trial() -> list[bool]:
        inbox = AsyncInbox("mailing", observer=recorded)
        store = AsyncSqliteStore(shop)
        async with store.transaction() as transaction:
            await transaction.begin()
            found = [await inbox.once(transaction.connection, message) for _ in range(2)]
            await transaction.commit()
        await store.aclose()
        return found

    assert asyncio.run(trial()) == [True, False]
    assert recorded.numbers("twicesafe.inbox.messages", "messaging.consumer.group.name", "twicesafe.result") == {
        ("billing", "handled"): 1,
        ("billing", "duplicate"): 2,
        ("mailing", "handled"): 1,
        ("mailing", "duplicate"): 1,
    }
    assert "m-0123456789" not in recorded.text


class Unknowns:
    """Three calls whose outcome is unknown, a minute apart."""

    def __init__(self, recorded: Recorded) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        once = Once(self.store, scope="shop", policy=Policy(unknown_on_error=True), observer=recorded)
        self.reconcilers = Reconcilers(self.store, observer=recorded)

        def charge(order: str) -> None:
            raise TimeoutError

        for name in ("charge", "refund", "transfer"):
            with pytest.raises(TimeoutError):
                once.operation(key=lambda order: f"order-0123456789-{order}", name=name)(charge)(name)
            self.clock.advance(timedelta(minutes=1))


def test_what_reconcilers_find_out_is_counted(recorded: Recorded) -> None:
    """R26, R44: held, then settled as done or not done, or asked in vain; what stays has a number and an age."""
    unknowns = Unknowns(recorded)
    answers: dict[str, Any] = {"charge": Unclear(), "refund": Done(1), "transfer": NotDone()}
    for name, answer in answers.items():
        unknowns.reconcilers.of(name)(lambda _, answer=answer: answer)
    unknowns.reconcilers.run_once()
    assert recorded.outcomes == {"held": 3}
    assert recorded.numbers("twicesafe.outcomes.settled", "twicesafe.operation", "twicesafe.result") == {
        ("charge", "unclear"): 1,
        ("refund", "done"): 1,
        ("transfer", "not_done"): 1,
    }
    assert recorded.numbers("twicesafe.outcomes.unsettled") == {(): 1}
    assert recorded.numbers("twicesafe.outcomes.oldest") == {(): 180}


def test_those_that_nobody_asks_about_count_as_unsettled(recorded: Recorded) -> None:
    """R26, R44: an outcome without a reconciler, one whose reconciler fails, and one that is not due yet."""
    unknowns = Unknowns(recorded)

    @unknowns.reconcilers.of("charge")
    def fails(_: Any) -> Any:
        raise ConnectionError

    @unknowns.reconcilers.of("refund")
    def unclear(_: Any) -> Any:
        return Unclear()

    for _ in range(2):
        unknowns.reconcilers.run_once()
        assert recorded.numbers("twicesafe.outcomes.unsettled") == {(): 3}
    found = recorded.numbers("twicesafe.outcomes.settled", "twicesafe.operation", "twicesafe.result")
    assert found == {("charge", "failed"): 1, ("refund", "unclear"): 1}
    assert recorded.numbers("twicesafe.events", "twicesafe.event")["reconcile.failed"] == 1


def test_a_look_in_parts_is_told_once_and_whole(recorded: Recorded) -> None:
    """R44: a look past many records says how many are unknown when it has come past all of them."""
    unknowns = Unknowns(recorded)
    rounds = 0
    while unknowns.reconcilers.run_once(1).more:
        rounds += 1
    assert rounds > 0
    assert recorded.numbers("twicesafe.outcomes.unsettled") == {(): 3}


def test_reconcilers_under_asyncio_count_alike(recorded: Recorded) -> None:
    """R26, R44: the same numbers, where nothing is unknown: none, and no age."""
    asyncio.run(AsyncReconcilers(AsyncMemoryStore(), observer=recorded).run_once())
    assert recorded.numbers("twicesafe.outcomes.unsettled") == {(): 0}
    assert recorded.numbers("twicesafe.outcomes.oldest") == {(): 0}


def test_what_a_reaper_takes_away_is_counted(recorded: Recorded) -> None:
    """R20, R27, R44: purged records and ended claims, by both kinds of reaper; each round adds to them."""
    clock = ManualClock()
    store, other = MemoryStore(clock=clock), AsyncMemoryStore(clock=clock)
    once, aonce = Once(store, scope="shop", observer=recorded), AsyncOnce(other, scope="shop", observer=recorded)

    async def nothing() -> None: ...

    async def run() -> None:
        for number in range(3):
            await aonce(f"key-0123456789-{number}", nothing)

    for number in range(2):
        once(f"key-0123456789-{number}", lambda: None)
    asyncio.run(run())
    clock.advance(timedelta(days=3))
    Reaper(store, pause=timedelta(0), observer=recorded).run_once()
    asyncio.run(AsyncReaper(other, pause=timedelta(0), observer=recorded).run_once())
    assert recorded.numbers("twicesafe.reaper.records", "twicesafe.result") == {"purged": 5}


def test_stale_claims_that_a_reaper_ends_are_counted_by_their_number(recorded: Recorded) -> None:
    """R27, R44: as many as were ended, loudly, for each is work of which nobody knows."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for number in range(3):
        _claimed_and_lost(store, f"key-0123456789-{number}")
    clock.advance(timedelta(hours=1))
    Reaper(store, pause=timedelta(0), observer=recorded).run_once()
    assert recorded.numbers("twicesafe.reaper.records", "twicesafe.result") == {"settled": 3}
    assert recorded.numbers("twicesafe.events", "twicesafe.event") == {"reaper.settled_stale": 1}


def _claimed_and_lost(store: MemoryStore, key: str) -> None:
    class Killed(BaseException):
        """What ends a process leaves no time to say so."""

    class Dead:
        def __getattr__(self, name: str) -> Any:
            if name == "claim":
                return store.claim
            raise Killed

    def work() -> None:
        raise Killed

    once = Once(store, scope="shop", observer=lambda _: None)
    once._shared.store = Dead()  # type: ignore[assignment]
    with pytest.raises(Killed):
        once(key, work)


def test_a_workers_rounds_are_counted(recorded: Recorded) -> None:
    """R27, R44: each part's rounds, with their time, and those that failed: an alarm on a worker that stands still."""

    class Down(MemoryStore):
        def purge(self, limit: int) -> int:
            raise StoreUnavailableError("down")

    async def trial() -> None:
        worker: Worker

        def observer(event: Event) -> None:
            recorded(event)
            if {"worker.round", "worker.failed"} <= set(recorded.told):
                worker.stop()

        observer.counts = True  # type: ignore[attr-defined]
        parts = Reconcilers(MemoryStore(), observer=recorded), Reaper(Down(), observer=recorded)
        worker = Worker(*parts, every=INSTANT, observer=observer)
        async with asyncio.timeout(30):
            await worker.run()

    asyncio.run(trial())
    rounds = recorded.numbers("twicesafe.worker.rounds", "twicesafe.part", "twicesafe.result")
    assert set(rounds) == {("reconcile", "done"), ("reap", "failed")}
    took = recorded.numbers("twicesafe.worker.round.duration", "twicesafe.part")
    assert took == {"reconcile": rounds["reconcile", "done"]}
