"""Rounds of a relay: whom they keep waiting, what a lease cuts short, and what they leave alone once it is lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import new_id
from tests.messages.relaying import EACH, Many, Receiver, rigged, trial
from twicesafe.core.message import Message
from twicesafe.errors import SchemaError
from twicesafe.outbox import relay as relay_module
from twicesafe.outbox.relay import Relay, Relayed
from twicesafe.stores.sqlite import AsyncSqliteStore

LASTS = timedelta(seconds=120)
"""A lease, on a busy machine."""


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds look for others at once."""
    monkeypatch.setattr(relay_module, "LOOK_AGAIN", 0.01)


@EACH
@pytest.mark.parametrize("kind", [Receiver, Many])
def test_a_slow_aggregate_keeps_nobody_waiting(
    databases: Databases, dialect: str, kind: type[Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R28, J2: while an aggregate that fills the batch takes its time, those of others arrive, once each, in order."""
    impatient(monkeypatch)
    receiver = kind()
    at_once = receiver.publish
    slow, waiting, quick = list[str](), list[str](), new_id()

    async def run() -> None:
        others = asyncio.Event()

        async def publish(message: Message) -> None:
            await asyncio.sleep(0.02)
            if message.id == slow[-1]:
                async with asyncio.timeout(60):
                    await others.wait()
            await at_once(message)
            if receiver.ids(quick) == waiting:
                others.set()

        monkeypatch.setattr(receiver, "publish", publish)
        async with rigged(databases, dialect, receiver) as rig:
            slow.extend(await rig.add(*[new_id()] * 4))
            waiting.extend(await rig.add(quick, quick))
            relay = rig.relay(batch=4, lease=LASTS)
            assert await relay.run_once() == Relayed(6, 0, True)
            assert [one.id for one in receiver.arrived if one.id in slow] == slow
            assert rig.states(quick) == ["delivered"] * 2

    trial(run)


@pytest.mark.parametrize("kind", [Receiver, Many])
def test_an_aggregate_with_much_to_deliver_is_gone_on_with_at_once(
    databases: Databases, kind: type[Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R28: a round that took its time for a part of an aggregate's messages, and found no others, asks for another."""
    impatient(monkeypatch)
    receiver = kind()
    at_once = receiver.publish

    async def publish(message: Message) -> None:
        await asyncio.sleep(0.02)
        await at_once(message)

    async def run() -> None:
        monkeypatch.setattr(receiver, "publish", publish)
        async with rigged(databases, "sqlite", receiver) as rig:
            slow = new_id()
            added = await rig.add(*[slow] * 5)
            relay = rig.relay(batch=2, lease=LASTS)
            assert [(await relay.run_once()).more for _ in range(3)] == [True, True, False]
            assert receiver.ids(slow) == added

    trial(run)


def test_a_message_that_the_lease_cuts_short_has_not_failed(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R28, B: only the first of a round's, which had the lease to itself, is counted as one that failed."""
    impatient(monkeypatch)

    async def run() -> None:
        async with rigged(databases, "sqlite") as rig:
            _, hanging = await rig.add(*[new_id()] * 2)
            left = [LASTS.total_seconds()]

            async def publish(message: Message) -> None:
                if message.id == hanging:
                    await asyncio.Event().wait()
                left[0] = 0.05

            relay = Relay(rig.store, publish, lease=LASTS)
            monkeypatch.setattr(relay, "_left", lambda: left[0])
            assert await relay.run_once() == Relayed(1, 0, True)
            assert await relay.run_once() == Relayed(0, 1, False)
            await relay.aclose()

    trial(run)


def test_a_round_that_lost_its_shards_begins_nothing_more(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R28, B4, I3: what a relay could not mark, for its shards are another's, it does not deliver in the same round."""
    impatient(monkeypatch)

    async def run() -> None:
        async with rigged(databases, "sqlite") as rig:
            hanging, failing = new_id(), new_id()
            await rig.add(hanging, failing)
            tried: list[str] = []

            async def publish(message: Message) -> None:
                tried.append(message.aggregateid)
                if message.aggregateid == hanging:
                    await asyncio.Event().wait()
                rig.database.ask("UPDATE twicesafe_relay_shards SET epoch = epoch + 1")
                raise OSError

            relay = Relay(rig.store, publish, lease=LASTS, observer=rig.events.append)
            # Until it is known to be lost, the lease lasts for another half of a second.
            monkeypatch.setattr(relay, "_left", lambda: 0.5 if relay._held_until else 0.0)
            assert (await relay.run_once()).failed == 2
            assert sorted(tried) == sorted([hanging, failing])
            assert "relay.lost" in [event.name for event in rig.events]
            await relay.aclose()

    trial(run)


def test_a_relay_without_its_tables_says_what_makes_them(tmp_path: Path) -> None:
    """R22: a database that was never prepared is named with the command that prepares it, in every round."""

    async def run() -> None:
        store = AsyncSqliteStore(tmp_path / "shop.db")
        relay = Relay(store, Receiver())
        for _ in range(2):
            with pytest.raises(SchemaError, match="twicesafe schema apply --store sqlite:///"):
                await relay.run_once()
        await store.apply_schema()
        assert await relay.run_once() == Relayed(0, 0, more=False)
        await relay.aclose()
        await store.aclose()

    asyncio.run(run())
