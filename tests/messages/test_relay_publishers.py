"""What relays make of publishers that do what they should not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import new_id
from tests.messages.relaying import EACH, OFTEN, Many, Receiver, rigged, trial
from twicesafe.core.message import Message
from twicesafe.errors import RefusedError
from twicesafe.outbox.relay import Relayed


class Thrown(BaseException):
    """Such as clients have that `except Exception` is not to catch."""


@pytest.mark.parametrize("thrown", [Thrown, asyncio.CancelledError])
@pytest.mark.parametrize("kind", [Receiver, Many])
def test_whatever_a_publisher_raises_is_a_failure_of_its_message(
    databases: Databases, kind: type[Receiver], thrown: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R28, J2: what no `except Exception` catches, or a cancellation of the client's own, fails its message, which is
    parked in the end, and keeps no other from arriving."""

    async def run() -> None:
        receiver = kind()
        at_once = receiver.publish
        async with rigged(databases, "sqlite", receiver) as rig:
            bad, good = new_id(), new_id()
            _, fine = await rig.add(bad, good)

            async def publish(message: Message) -> None:
                if message.aggregateid == bad:
                    raise thrown
                await asyncio.sleep(0.01)
                await at_once(message)

            monkeypatch.setattr(receiver, "publish", publish)
            relay = rig.relay(policy=OFTEN)
            rounds = [await relay.run_once() for _ in range(2)]
            assert receiver.ids(good) == [fine]
            assert rounds == [Relayed(1, 1, False), Relayed(0, 1, False)]
            assert rig.states(bad) == ["parked"]

    trial(run)


class Answers(Receiver):
    """Answers for others than it was asked about."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    async def publish_many(self, _: Sequence[Message]) -> Any:
        if isinstance(self.answer, type):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [[], [None] * 3, None, Thrown, asyncio.CancelledError])
def test_outcomes_that_belong_to_nobody_are_failures(databases: Databases, answer: Any) -> None:
    """R28, J2: where `publish_many` answers for fewer or more than it was given, or for none, nothing was delivered,
    and it is counted, so that it ends in dead letters and not in rounds for ever."""

    async def run() -> None:
        async with rigged(databases, "sqlite", Answers(answer)) as rig:
            aggregates = new_id(), new_id()
            await rig.add(*aggregates)
            relay = rig.relay(policy=OFTEN)
            assert [await relay.run_once() for _ in range(2)] == [Relayed(0, 2, False)] * 2
            assert [rig.states(one) for one in aggregates] == [["parked"]] * 2

    trial(run)


@EACH
def test_what_a_failure_says_keeps_no_other_from_being_marked(databases: Databases, dialect: str) -> None:
    """R28, J2: whatever stands in an error, what arrived in the same round is marked, and does not come again."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            good, bad = new_id(), new_id()
            added, _ = await rig.add(good, bad)
            rig.receiver.failing[bad] = RefusedError("half a pair, \ud800, and \0 and \U0001f600")
            relay = rig.relay()
            for _ in range(2):
                await relay.run_once()
            assert rig.receiver.ids(good) == [added]
            assert (rig.states(good), rig.states(bad)) == (["delivered"], ["parked"])
            said = rig.database.ask("SELECT last_error FROM twicesafe_outbox WHERE aggregateid = %s", bad)
            assert said == [("RefusedError: half a pair, \\ud800, and  and \U0001f600",)]

    trial(run)


def test_who_cancels_a_round_ends_it(databases: Databases) -> None:
    """R28: a round that is cancelled from outside counts nothing as failed, whatever the publisher was at."""

    async def run() -> None:
        async with rigged(databases, "sqlite") as rig:
            aggregate, begun = new_id(), asyncio.Event()
            await rig.add(aggregate)

            class Hanging(Receiver):
                async def publish(self, message: Message) -> None:
                    begun.set()
                    await asyncio.Event().wait()

            rig.receiver = Hanging()
            running = asyncio.create_task(rig.relay(policy=OFTEN).run_once())
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert rig.database.ask(
                "SELECT state, attempts FROM twicesafe_outbox WHERE aggregateid = %s", aggregate
            ) == [("pending", 0)]

    trial(run)
