"""What becomes of messages where relays die, receivers are away, and writers are at work meanwhile."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import Database, new_id, opened
from tests.messages.relaying import EACH, INSTANT, STORES, Rig, rigged, trial
from twicesafe.core.delivery import DeliveryPolicy
from twicesafe.outbox.relay import Relay, Relayed

RELAYING = """
import asyncio, sys
from twicesafe.outbox.relay import Relay
from twicesafe.stores.sqlite import AsyncSqliteStore

database, when, receiver = sys.argv[1:]


def publish(message):
    if when == "after":
        with open(receiver, "a") as file:
            file.write(message.id)
    print("publishing", flush=True)
    sys.stdin.read()


asyncio.run(Relay(AsyncSqliteStore(database), publish).run_once())
"""


def kill_while_publishing(database: Database, when: str, receiver: Path) -> None:
    """A relay in a process of its own, killed in the midst of its first message."""
    killed = subprocess.Popen(
        [sys.executable, "-c", RELAYING, database.where, when, str(receiver)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"publishing\n"
        killed.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_relay_that_is_killed_delivers_again(databases: Databases, tmp_path: Path, when: str) -> None:
    """J2, R28: a relay that is killed before the receiver has the message, or before it is marked, loses nothing: at
    most it comes again, under the same id."""

    async def run() -> None:
        async with rigged(databases, "sqlite") as rig:
            aggregate, receiver = new_id(), tmp_path / "received"
            receiver.touch()
            (added,) = await rig.add(aggregate)
            kill_while_publishing(rig.database, when, receiver)
            assert receiver.read_text() == (added if when == "after" else "")
            assert rig.states(aggregate) == ["pending"]
            successor = rig.relay()
            assert await successor.run_once() == Relayed(0, 0, False)
            rig.database.ask("UPDATE twicesafe_relay_shards SET lease_until = 1")
            assert await successor.run_once() == Relayed(1, 0, False)
            assert rig.receiver.ids(aggregate) == [added]
            assert rig.states(aggregate) == ["delivered"]

    trial(run)


@EACH
def test_a_receiver_that_comes_back_gets_everything(databases: Databases, dialect: str) -> None:
    """J2, R28: a message whose delivery raised five times is delivered by the sixth, before those that came later."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            aggregate = new_id()
            added = await rig.add(aggregate, aggregate)
            rig.receiver.failing[aggregate] = OSError("down")
            relay = rig.relay(policy=DeliveryPolicy(first_delay=INSTANT, longest_delay=INSTANT))
            failures = 0
            while failures < 5:
                failures += (await relay.run_once()).failed
            rig.receiver.failing.clear()
            while not rig.receiver.arrived:
                await relay.run_once()
            assert rig.receiver.ids(aggregate) == added
            assert rig.states(aggregate) == ["delivered"] * 2

    trial(run)


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
def test_writers_and_relays_at_once_lose_nothing_and_keep_the_order(databases: Databases, dialect: str) -> None:
    """I9, R28, K: while writers commit in any order two relays deliver everything, each aggregate's in its order."""
    aggregates = [new_id() for _ in range(6)]

    async def write(rig: Rig, number: int) -> None:
        async with opened(rig.database, STORES[dialect][0]) as one:
            for turn in range(10):
                await one.begin()
                for aggregate in sorted({aggregates[(number + turn) % 6], aggregates[number * turn % 6]}):
                    await one.add(aggregate)
                await (one.roll_back() if (number + turn) % 5 == 4 else one.commit())

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            relays = [rig.relay(batch=7), rig.relay(batch=7)]
            written = asyncio.Event()

            async def deliver(relay: Relay) -> None:
                while True:
                    last = written.is_set()
                    if not (await relay.run_once()).delivered and last:
                        return

            async with asyncio.TaskGroup() as group:
                for relay in relays:
                    group.create_task(deliver(relay))
                await asyncio.gather(*(write(rig, number) for number in range(4)))
                written.set()
            # What one had in its hands when the other looked for the last time.
            await relays[1].aclose()
            while (await relays[0].run_once()).delivered:
                pass
            for aggregate in aggregates:
                assert rig.receiver.ids(aggregate) == rig.database.messages(aggregate) != []
                assert set(rig.states(aggregate)) == {"delivered"}

    trial(run)
