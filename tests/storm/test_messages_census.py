"""The census of messages: what was committed against what arrived, and the plan of what is written."""

from __future__ import annotations

from twicesafe.storm.messages.books import Sent
from twicesafe.storm.messages.census import Findings, take
from twicesafe.storm.messages.writers import LONGEST, draw

SENT = [Sent("a1", "a", 1), Sent("b1", "b", 1), Sent("a2", "a", 2), Sent("a3", "a", 3)]
IDS = [one.message for one in SENT]
GOOD = Findings(messages=4, deliveries=4, duplicates=0, effects=4, out_of_order=0, lost=0, phantoms=0, repeated=0)


def test_each_delivered_once_and_in_order() -> None:
    """R28, R29: aggregates may mix as they like; that is what is asked for."""
    found = take(SENT, ["b1", "a1", "a2", "a3"], ["a3", "a1", "b1", "a2"])
    assert found == GOOD
    assert found.clean


def test_another_delivery_is_no_fault() -> None:
    """R28, R29: a delivery more is counted; it may come late, for the first one is what order is about."""
    found = take(SENT, [*IDS, "a1", "a1"], IDS)
    assert found == GOOD._replace(deliveries=6, duplicates=2)
    assert found.clean


def test_a_message_that_overtakes_is_out_of_order() -> None:
    """R28: what comes first after a later one of its aggregate is counted, each."""
    found = take(SENT, ["a3", "b1", "a1", "a2"], IDS)
    assert found == GOOD._replace(out_of_order=2)
    assert not found.clean


def test_what_is_lost_is_counted_once() -> None:
    """I9: a message that was not delivered, and one that had no effect, are lost."""
    found = take(SENT, ["a1", "b1", "a2"], ["a1", "b1"])
    assert found == GOOD._replace(deliveries=3, effects=2, lost=2)
    assert not found.clean


def test_what_nobody_committed_is_a_phantom() -> None:
    """I9: a message of a transaction that rolled back must not arrive."""
    found = take(SENT, [*IDS, "x"], [*IDS, "x"])
    assert found == GOOD._replace(deliveries=5, effects=5, phantoms=1)
    assert not found.clean


def test_an_effect_more_is_told() -> None:
    """R29: one that happened twice is no success, although another one that lacks makes the sum right."""
    found = take(SENT, [*IDS, "a1"], ["a1", "a1", "b1", "a2"])
    assert found == GOOD._replace(deliveries=5, duplicates=1, repeated=1, lost=1)
    assert not found.clean


def test_a_seed_is_a_plan() -> None:
    """R42: the same seed writes the same; transactions take 0 to 20 ms, and some roll back first."""
    works = list(draw(7, 500))
    assert works == list(draw(7, 500)) != list(draw(8, 500))
    assert [work.number for work in works] == list(range(500))
    assert all(work.before >= 0 and work.after >= 0 and work.before + work.after <= LONGEST for work in works)
    assert 0 < sum(work.in_vain for work in works) < 50
    assert len({work.aggregate for work in works}) == 8
