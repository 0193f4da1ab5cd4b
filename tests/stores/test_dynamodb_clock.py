"""DynamoDB's clock, as far as the dates of its answers tell."""

from __future__ import annotations

import asyncio
import random
from email.utils import formatdate

import pytest

from tests.servers.dynamodb import DynamodbServer
from tests.stores.claims import LEASE, wish
from tests.stores.dynamodb_place import KIND, new_place
from tests.stores.postgresql_kinds import as_async
from twicesafe.core.claims import Claimed
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.dynamodb_clock import DRIFT, SECOND, SKEW, STOOD_STILL, DateClock, Window
from twicesafe.stores.dynamodb_requests import Answer
from twicesafe.stores.dynamodb_steps import DynamodbSteps

HOUR = 3600 * SECOND


class World:
    """A machine and a service, each with a clock; messages between them take their time."""

    def __init__(self, *, ahead: int = 7 * HOUR + 123_456, pace: float = 1.0) -> None:
        self.time = 1_790_000_000 * SECOND
        """The service's, and the truth."""
        self.machine_ahead = -5 * HOUR
        self._ahead, self._pace, self._start = ahead, pace, self.time
        self.slept = 0
        self.clock = DateClock(steady=self.steady, machine=lambda: self.time + self.machine_ahead)

    def steady(self) -> int:
        return int((self.time - self._start - self.slept) * self._pace) + self._ahead

    def ask(self, there: int = 4_000, back: int = 5_000, skew: int = 0) -> bool:
        """One request and its answer."""
        sent = self.clock.ticks()
        self.time += there
        date = formatdate((self.time + skew) // SECOND, usegmt=True)
        self.time += back
        return self.clock.observe(date, sent, self.clock.ticks())

    def window(self) -> Window:
        window = self.clock.window()
        assert window is not None
        return window


def test_nothing_is_known_before_the_first_answer() -> None:
    """I12: no lease is counted from a clock that nobody has told; an answer without a date tells nothing."""
    world = World()
    assert world.clock.window() is None
    for date in (None, "", "yesterday", "Thu, 99 Foo 2026 00:00:00 GMT"):
        assert world.clock.observe(date, 0, 1)
    assert world.clock.window() is None
    world.ask()
    assert world.clock.window() is not None


@pytest.mark.parametrize("pace", [1.0, 1 + 1 / DRIFT, 1 - 1 / DRIFT])
def test_the_truth_is_always_in_the_window(pace: float) -> None:
    """I12: whatever the delays, idle times and the pace of our own clock, a window holds the service's now."""
    dice = random.Random(17)
    world = World(pace=pace)
    known = 0
    for _ in range(2000):
        world.ask(there=dice.randrange(1_000, 900_000), back=dice.randrange(1_000, 900_000))
        world.time += dice.choice((0, 0, 10_000, SECOND, 60 * SECOND, HOUR))
        window = world.clock.window()
        if window is not None:
            known += 1
            assert window.earliest <= world.time <= window.latest
    assert known > 1500, "an hour's drift may close it, nothing else"


def test_answers_narrow_the_window_down() -> None:
    """I12: one answer leaves a second of doubt, some dozens hardly more than a round trip and what skew is allowed."""
    world = World()
    world.ask()
    first = world.window()
    assert first.latest - first.earliest <= SECOND + 9_000 + SKEW
    for _ in range(200):
        world.time += 37_001
        world.ask()
    last = world.window()
    assert last.latest - last.earliest <= 4 * 9_000 + SKEW


def test_front_ends_that_differ_a_little_are_one_clock() -> None:
    """I12: clocks apart by less than the allowance leave a window that both are in."""
    world = World()
    for turn in range(400):
        world.time += 41_003
        assert world.ask(skew=SKEW // 2 if turn % 2 else 0)
        window = world.window()
        assert window.latest >= world.time


def test_a_machine_that_slept_asks_anew() -> None:
    """I12: where the steady clock stood still the window is gone, and the next answer opens the right one."""
    world = World()
    world.ask()
    world.time += HOUR
    world.slept += HOUR
    assert world.clock.window() is None
    world.ask()
    assert world.window().earliest <= world.time <= world.window().latest


def test_a_process_that_was_frozen_unseen_learns_it_from_the_answer() -> None:
    """I12: where both clocks of a machine stood still, the answer's date contradicts them, and is believed."""
    world = World()
    world.ask()
    world.time += HOUR
    world.slept += HOUR
    world.machine_ahead -= HOUR
    assert world.window().latest < world.time, "nothing could tell"
    assert not world.ask()
    assert world.window().earliest <= world.time <= world.window().latest


def test_a_machine_whose_clock_is_set_is_no_matter() -> None:
    """I12: the machine's clock is never the time: set by hours, it costs one more question."""
    world = World()
    world.ask()
    world.machine_ahead += 3 * HOUR
    assert STOOD_STILL < 3 * HOUR and world.clock.window() is None
    world.ask()
    assert world.window().earliest <= world.time <= world.window().latest


def test_a_claim_won_by_a_clock_that_was_wrong_is_renewed() -> None:
    """I12, R12: the answer to the claim shows that its lease may have been over as it began: it begins again."""
    world = World()
    world.ask()
    steps = DynamodbSteps("records", world.clock).claim(wish())
    put = next(steps)
    assert put.name == "put_item"
    renew = steps.send(Answer({}, jumped=True))
    assert renew.name == "update_item" and "#lease_until" in renew.arguments["UpdateExpression"]
    with pytest.raises(StopIteration) as end:
        steps.send(Answer({}))
    assert isinstance(end.value.value, Claimed)


def test_an_endpoint_without_dates_is_refused() -> None:
    """I12: without a clock to go by nothing is claimed."""
    steps = DynamodbSteps("records", World().clock).claim(wish())
    assert next(steps).name == "get_item"
    with pytest.raises(StoreUnavailableError, match="Date"):
        steps.send(Answer({}))


@KIND
def test_leases_are_counted_on_the_services_clock(dynamodb_server: DynamodbServer, kind: str) -> None:
    """I12, R12: by the dates of real answers a lease lasts its length on the service's clock, or a second more."""

    async def trial() -> None:
        store = as_async(new_place(dynamodb_server, kind).store())
        await store.apply_schema()
        before = await store.now()
        found = await store.claim(wish())
        assert isinstance(found, Claimed)
        record = (await store.read(found.ownership.digest)).record
        after = await store.now()
        assert record is not None
        assert before + LEASE <= record.lease_until <= after + LEASE + 2 * SECOND
        await store.aclose()

    asyncio.run(trial())
