"""The relay: at least once, in order within an aggregate, and nobody's messages but those of its own shards."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import new_id
from tests.messages.relaying import EACH, OFTEN, Many, Receiver, rigged, trial
from twicesafe.core.delivery import DeliveryPolicy, MessageState, Poison, micros
from twicesafe.core.message import Message
from twicesafe.errors import ConfigurationError, NotDeliveredError, RefusedError
from twicesafe.outbox import relay as relay_module
from twicesafe.outbox.relay import Relay, Relayed
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sql.messages import purge_inbox
from twicesafe.stores.sql.relaying import delivered, discard, hold_shards, listed, retry, waiting
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.worker import Worker


@EACH
@pytest.mark.parametrize("receiver", [Receiver, Many])
def test_what_is_committed_arrives_once_and_in_order(databases: Databases, dialect: str, receiver: Any) -> None:
    """R28, I9: what is pending is delivered, each aggregate's in its order, and marked; nothing comes twice."""

    async def run() -> None:
        async with rigged(databases, dialect, receiver()) as rig:
            one, two = new_id(), new_id()
            added = await rig.add(one, two, one, one, two)
            relay = rig.relay()
            assert await relay.run_once() == Relayed(5, 0, False)
            assert rig.receiver.ids(one) == [added[0], added[2], added[3]]
            assert rig.receiver.ids(two) == [added[1], added[4]]
            message = rig.receiver.arrived[0]
            assert (message.source, message.type, message.aggregatetype) == ("/tests", "order.placed", "order")
            assert message.data == b'{"n":1}' and message.time is not None and message.time.endswith("Z")
            assert rig.states(one) == ["delivered"] * 3
            assert await relay.run_once() == Relayed(0, 0, False)
            assert len(rig.receiver.arrived) == 5

    trial(run)


@EACH
def test_poison_holds_its_own_aggregate_only(databases: Databases, dialect: str) -> None:
    """R28, J2: a message that fails often enough is parked; later ones of its aggregate are held, others flow, and a
    retry releases them in order."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            bad, good = new_id(), new_id()
            added = await rig.add(bad, bad, good)
            rig.receiver.failing[bad] = OSError("down")
            relay = rig.relay(policy=OFTEN)
            assert await relay.run_once() == Relayed(1, 1, False)
            assert rig.states(bad) == ["pending", "pending"]
            while rig.states(bad)[0] == "pending":
                await relay.run_once()
            added += await rig.add(bad, good)
            assert await relay.run_once() == Relayed(1, 0, False)
            assert rig.states(bad) == ["parked", "pending", "pending"]
            assert rig.receiver.ids(good) == [added[2], added[4]]
            assert [(event.name, event.loud) for event in rig.events] == [
                ("message.failed", False),
                ("message.parked", True),
            ]
            assert (await rig.run(waiting))[::2] == (2, 1)
            (dead,) = await rig.run(lambda sql: listed(sql, MessageState.PARKED, 0, 10))
            assert (dead.id, dead.attempts, dead.last_error) == (added[0], 2, "OSError")
            rig.receiver.failing.clear()
            assert await rig.run(lambda sql: retry(sql, added[0]))
            assert await relay.run_once() == Relayed(3, 0, False)
            assert rig.receiver.ids(bad) == [added[0], added[1], added[3]]

    trial(run)


@EACH
def test_a_receiver_is_left_alone_for_as_long_as_it_asks(databases: Databases, dialect: str) -> None:
    """R28: a message waits at least as long as its receiver asked for, and what the publisher said of it is kept."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            await rig.add(busy := new_id())
            rig.receiver.failing[busy] = NotDeliveredError("answered 503", 1800)
            assert await rig.relay(policy=OFTEN).run_once() == Relayed(0, 1, False)
            (late,) = await rig.run(lambda sql: listed(sql, MessageState.PENDING, 0, 10))
            assert late.next_at >= late.created_at + 1_800_000_000
            assert late.last_error == "NotDeliveredError: answered 503"

    trial(run)


@EACH
@pytest.mark.parametrize("poison", Poison)
def test_a_refused_message_is_poison_at_once(databases: Databases, dialect: str, poison: Poison) -> None:
    """R28: a message that can never be delivered is not tried again: parked, skipped, or in the way, as was chosen."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            bad = new_id()
            await rig.add(bad, bad)
            rig.receiver.failing[bad] = RefusedError("no such exchange")
            relay = rig.relay(policy=DeliveryPolicy(poison=poison))
            assert await relay.run_once() == Relayed(0, 1, False)
            rig.receiver.failing.clear()
            await relay.run_once()
            after = {
                Poison.PARK: (["parked", "pending"], 0),
                Poison.SKIP: (["skipped", "delivered"], 1),
                Poison.BLOCK: (["pending", "pending"], 0),
            }[poison]
            assert (rig.states(bad), len(rig.receiver.arrived)) == after

    trial(run)


@EACH
def test_discarding_lets_the_rest_flow(databases: Databases, dialect: str) -> None:
    """R28: a dead letter that is given up holds nobody, is never delivered, and cannot be given up twice; one that is
    given up on its way stays so, and its relay is not told to have lost its shards."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            bad = new_id()
            added = await rig.add(bad, bad)
            rig.receiver.failing[bad] = RefusedError("no")
            relay = rig.relay()
            await relay.run_once()
            rig.receiver.failing.clear()
            assert [await rig.run(lambda sql: discard(sql, added[0])) for _ in range(2)] == [True, False]
            assert not await rig.run(lambda sql: retry(sql, added[0]))
            assert await relay.run_once() == Relayed(1, 0, False)
            assert rig.receiver.ids(bad) == [added[1]]
            assert rig.states(bad) == ["discarded", "delivered"]
            await relay.aclose()
            await rig.add(bad)

            async def discarded_meanwhile(message: Message) -> None:
                assert await rig.run(lambda sql: discard(sql, message.id))

            late = Relay(rig.store, discarded_meanwhile, observer=rig.events.append)
            assert await late.run_once() == Relayed(1, 0, False)
            assert rig.states(bad)[2] == "discarded"
            assert [event.name for event in rig.events] == ["message.parked"]
            await late.aclose()

    trial(run)


@EACH
def test_a_relay_that_lost_its_shards_marks_nothing(databases: Databases, dialect: str) -> None:
    """R28, I3, I12: while another relay holds the shards nothing is marked, so the message comes again, never less."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            aggregate = new_id()
            added = await rig.add(aggregate)
            other = b"another relay's"

            async def taken_meanwhile(message: Message) -> None:
                rig.receiver.arrived.append(message)
                rig.database.ask("UPDATE twicesafe_relay_shards SET lease_until = 0")
                await rig.run(lambda sql: hold_shards(sql, other, 60_000_000))

            late = Relay(rig.store, taken_meanwhile, observer=rig.events.append)
            await late.run_once()
            assert rig.states(aggregate) == ["pending"]
            assert [event.name for event in rig.events] == ["relay.lost"]
            assert await late.run_once() == Relayed(0, 0, False)
            rig.database.ask("UPDATE twicesafe_relay_shards SET lease_until = 0")
            await rig.relay().run_once()
            assert rig.receiver.ids(aggregate) == added * 2
            assert rig.states(aggregate) == ["delivered"]

    trial(run)


@EACH
def test_relays_share_the_shards(databases: Databases, dialect: str) -> None:
    """R28: relays that come later get their share of the shards, deliver everything between them, and inherit from who
    leaves."""

    owners = "SELECT count(*) FROM twicesafe_relay_shards WHERE lease_until > 0 GROUP BY owner"

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            one, two, three = rig.relay(), rig.relay(), rig.relay()
            for shares in ([64], [32, 32], [20, 22, 22]):
                for _ in range(3):
                    for relay in rig.relays[: len(shares)]:
                        await relay.run_once()
                assert sorted(row[0] for row in rig.database.ask(owners)) == shares
            await three.aclose()
            for relay in (one, two):
                await relay.run_once()
            added = await rig.add(*[new_id() for _ in range(20)])
            results = [await two.run_once(), await one.run_once()]
            assert sum(result.delivered for result in results) == 20
            assert sorted(message.id for message in rig.receiver.arrived) == sorted(added)
            await one.aclose()
            added += await rig.add(*[new_id() for _ in range(20)])
            assert (await two.run_once()).delivered == 20
            assert sorted(message.id for message in rig.receiver.arrived) == sorted(added)

    trial(run)


@EACH
def test_a_full_round_asks_for_another(databases: Databases, dialect: str) -> None:
    """R28: a round takes so many messages, says that there are more, and goes on with the next ones."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            aggregate = new_id()
            added = await rig.add(*[aggregate] * 5)
            relay = rig.relay(batch=2)
            assert [await relay.run_once() for _ in range(3)] == [
                Relayed(2, 0, True),
                Relayed(2, 0, True),
                Relayed(1, 0, False),
            ]
            assert rig.receiver.ids(aggregate) == added

    trial(run)


@EACH
def test_delivered_messages_are_deleted_after_their_time(databases: Databases, dialect: str) -> None:
    """R20, R28: what was delivered long enough ago is deleted, and nothing that waits or is younger."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            old, young, bad = new_id(), new_id(), new_id()
            await rig.add(old, bad)
            rig.receiver.failing[bad] = RefusedError("no")
            await rig.relay().run_once()
            rig.database.ask(
                "UPDATE twicesafe_outbox SET delivered_at = delivered_at - 7200000000 WHERE delivered_at > 0"
            )
            await rig.relays[0].aclose()
            await rig.add(young)
            await rig.relay(keep=timedelta(hours=1)).run_once()
            assert [rig.states(one) for one in (old, young, bad)] == [[], ["delivered"], ["parked"]]

    trial(run)


@EACH
def test_for_ever_is_a_duration(databases: Databases, dialect: str) -> None:
    """R20, R28: with the longest duration there is nothing is deleted, and a message that was refused is left alone."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            old, bad = new_id(), new_id()
            await rig.add(old, bad)
            rig.receiver.failing[bad] = RefusedError("no")
            rig.relay(keep=timedelta.max, policy=DeliveryPolicy(longest_delay=timedelta.max, poison=Poison.BLOCK))
            assert [await rig.relays[0].run_once() for _ in range(2)] == [Relayed(1, 1, False), Relayed(0, 0, False)]
            assert [rig.states(one) for one in (old, bad)] == [["delivered"], ["pending"]]
            assert await rig.run(lambda sql: purge_inbox(sql, micros("older_than", timedelta.max), 10)) == 0

    trial(run)


def test_wrong_relays_are_refused() -> None:
    """R28: a store without transactions, a publisher that is none, and settings of nothing, are refused at once."""
    store = AsyncSqliteStore("never-opened.db")
    with pytest.raises(ConfigurationError, match="transactions"):
        Relay(AsyncMemoryStore(), print)
    with pytest.raises(ConfigurationError, match="publisher"):
        Relay(store, "broker")  # type: ignore[arg-type]
    for wrong in ({"batch": 0}, {"at_once": 0}, {"lease": timedelta(0)}, {"keep": 7}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            Relay(store, print, **wrong)  # type: ignore[arg-type]


@EACH
def test_a_worker_relays_until_it_is_stopped(databases: Databases, dialect: str) -> None:
    """R28, R27: as a part of a worker a relay delivers round after round, and leaves its shards when it is stopped."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            added = await rig.add(*[new_id() for _ in range(5)])
            arrived: list[str] = []

            async def publish(message: Message) -> None:
                arrived.append(message.id)
                if len(arrived) == 5:
                    worker.stop()

            relay = Relay(rig.store, publish, batch=2, observer=rig.events.append)
            worker = Worker(relay, every=timedelta(0), observer=rig.events.append)
            async with asyncio.timeout(60):
                await worker.run()
            assert sorted(arrived) == sorted(added)
            assert [event.name for event in rig.events] == []
            assert [(health.part, health.failures) for health in worker.health()] == [("relay", 0)]
            assert rig.database.ask("SELECT count(*) FROM twicesafe_relay_shards WHERE lease_until > 0") == [(0,)]
            left = rig.database.ask("SELECT count(*) FROM twicesafe_outbox WHERE state <> 'delivered'")
            assert left == [(0,)]

    trial(run)


def test_a_stop_begins_no_further_message(databases: Databases) -> None:
    """R28: of an aggregate's messages the one that is under way at a stop is marked, and the next one not begun."""

    async def run() -> None:
        async with rigged(databases, "sqlite") as rig:
            aggregate, stopping = new_id(), threading.Event()
            await rig.add(aggregate, aggregate)

            def publish(_: Message) -> None:
                stopping.set()

            relay = Relay(rig.store, publish)
            assert (await relay.run_once(stopping)).delivered == 1
            assert rig.states(aggregate) == ["delivered", "pending"]
            assert (await relay.run_once()).delivered == 1
            await relay.aclose()

    trial(run)


def test_a_long_round_marks_on_its_way(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: whoever dies in a long round has marked what arrived in it; what could not be marked is at its end."""
    monkeypatch.setattr(relay_module, "MARK_EVERY", 0.0)

    async def run() -> None:
        async with rigged(databases, "sqlite") as rig:
            aggregate, seen = new_id(), list[list[str]]()
            await rig.add(*[aggregate] * 3)
            relay = Relay(rig.store, lambda _: seen.append(rig.states(aggregate)))
            assert await relay.run_once() == Relayed(3, 0, False)
            assert seen == [
                ["pending", "pending", "pending"],
                ["delivered", "pending", "pending"],
                ["delivered", "delivered", "pending"],
            ]
            await rig.add(aggregate, aggregate)
            with monkeypatch.context() as patch:
                refusals = iter([OSError("a driver's own")])

                def refused_once(*arguments: Any) -> Any:
                    for refusal in refusals:
                        raise refusal
                    return delivered(*arguments)

                patch.setattr(relay_module, "delivered", refused_once)
                assert await relay.run_once() == Relayed(2, 0, False)
            assert rig.states(aggregate) == ["delivered"] * 5
            assert list(refusals) == []
            await relay.aclose()

    trial(run)


def test_a_cancelled_round_has_marked_what_arrived(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: a round that is cancelled while it marks ends when that is done, and begins with no further message."""
    monkeypatch.setattr(relay_module, "MARK_EVERY", 0.0)

    async def run() -> None:
        async with rigged(databases, "sqlite") as rig:
            aggregate = new_id()
            added = await rig.add(aggregate, aggregate)
            round_ = asyncio.create_task(rig.relay().run_once())

            def cancelled_meanwhile(*arguments: Any) -> Any:
                round_.cancel()
                return delivered(*arguments)

            monkeypatch.setattr(relay_module, "delivered", cancelled_meanwhile)
            with pytest.raises(asyncio.CancelledError):
                await round_
            assert rig.states(aggregate) == ["delivered", "pending"]
            assert rig.receiver.ids(aggregate) == added[:1]

    trial(run)
