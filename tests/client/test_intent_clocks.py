"""Reserved intents by a clock that is set: what may have been sent too long ago is not sent again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.client.bindings import QUICK
from tests.client.reserving import ONCE
from twicesafe.client import Intent, IntentOverdueError, IntentStore, Standing

DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
START = 1_790_000_000_000_000
NAME = "cart 17"


def charge() -> Intent:
    return Intent.new("POST", "https://pay.example/charges", json={"amount": 100})


@pytest.mark.parametrize("back", [timedelta(hours=71), 30 * DAY], ids=["behind what was seen", "behind the run"])
def test_a_clock_that_is_set_back_gives_no_time_back(tmp_path: Path, back: timedelta) -> None:
    """R34, I6: how long ago it was sent nobody knows any more, so its server may have forgotten it: it is not sent.
    What is sent from then on counts by the clock as it is, and the rest can be settled by who knows."""
    times = [START]
    store = IntentStore(tmp_path / "intents.db", clock=lambda: times[-1])
    reserved = store.reserve(NAME, charge(), remembers=DAY)
    store.runs.begin(reserved, ONCE, None)
    # Three days later somebody is at the file for another intent, and then the clock is set back.
    times.append(START + 3 * DAY // MICROSECOND)
    store.reserve("another", charge(), remembers=DAY)
    times.append(times[-1] - back // MICROSECOND)
    found = store.find(NAME)
    assert found is not None and found.standing is Standing.OVERDUE
    with pytest.raises(IntentOverdueError):
        store.runs.begin(reserved, QUICK, None)
    later = store.reserve("later", charge(), remembers=DAY)
    store.runs.begin(later, ONCE, None)
    times.append(times[-1] + timedelta(hours=23) // MICROSECOND)
    begun = store.runs.begin(later, QUICK.but(deadline=3 * DAY), None)
    assert begun.policy.deadline == timedelta(hours=1) - timedelta(minutes=1)
    with pytest.raises(IntentOverdueError):
        store.runs.begin(reserved, QUICK, None)
    store.settle(NAME, done=True, why="ch_1 is in the account")


def test_what_was_settled_before_the_clock_was_set_back_is_kept_for_long_enough(tmp_path: Path) -> None:
    """R34: it may have been sent just before that, and a name that is forgotten too early is another intent."""
    times = [START]
    store = IntentStore(tmp_path / "intents.db", clock=lambda: times[-1])
    reserved = store.reserve(NAME, charge(), remembers=DAY)
    store.runs.begin(reserved, ONCE, None)
    store.settle(NAME, done=True, why="looked up")
    times.append(START - 30 * DAY // MICROSECOND)
    assert store.purge() == 0
    times.append(times[-1] + DAY // MICROSECOND - 1)
    assert store.purge() == 0
    times.append(times[-1] + 1)
    assert store.purge() == 1


def test_a_clock_that_is_corrected_by_a_little_was_not_set_back(tmp_path: Path) -> None:
    """R34: hosts correct their clocks all the time; for as long as that is the time stands still."""
    times = [START]
    store = IntentStore(tmp_path / "intents.db", clock=lambda: times[-1])
    reserved = store.reserve(NAME, charge(), remembers=DAY)
    store.runs.begin(reserved, ONCE, None)
    times.append(START - 900_000)
    begun = store.runs.begin(reserved, QUICK.but(deadline=3 * DAY), None)
    assert begun.policy.deadline == DAY - timedelta(minutes=1)
