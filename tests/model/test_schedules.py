"""Every schedule of the real exchange on the real statements, up to a bound, and what holds on all of them."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from tests.model.scenarios import (
    SCENARIOS,
    STANDING_STILL,
    gone_through,
    replayed,
    standing_still_before_it_sends,
)
from tests.model.schedule_table import note, table
from twicesafe.testing.exploring import explore, replay

AT_LEAST = {"keyed": 100_000, "opaque": 100_000, "transactional": 100_000, "resumable": 100_000}


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_schedule_breaks_an_invariant(name: str, request: Any) -> None:
    """I1 to I6, I11, I12: whatever is lost, late or dead, at whatever step, one effect and one answer come of a key."""
    began = process_time()
    explored = gone_through(name)
    note(request, name, explored, process_time() - began)
    assert explored.broken is None, f"{name}: {explored.broken.schedule}  ({explored.broken.what})"
    assert explored.schedules >= AT_LEAST.get(name, 1000)


def test_a_schedule_is_a_line_that_can_be_gone_again() -> None:
    """I3, I5: a late owner that comes back after its successor's answer changes nothing, and gives that answer."""
    state = replayed("keyed: 1 1 1 + 2 2 2 2 2 1 1 1 1")
    late, successor = state.actors
    assert state.charges == (state.charges[0],)
    assert {answer[1:] for answer in state.answers} == {(201, b"charge 1 for a")}
    assert late.noticed == {"lease.lost"}
    assert successor.noticed == {"claim.taken_over"}


def test_a_take_over_whose_reply_was_lost_still_knows_that_somebody_was_there_before() -> None:
    """I4, I6, K: an attempt that did nothing after it took over forgets no key under which another did something."""
    state = replayed("keyed: 1 1 1 + 2 2? 2 2 2! 2 2 x1")
    assert len(state.charges) == 1
    assert state.actors[1].noticed == {"claim.taken_over"}


@pytest.mark.parametrize("looks_up", [False, True])
def test_a_request_that_begins_too_late_is_a_second_charge(*, looks_up: bool) -> None:
    """R25: why the clock is looked at before the first byte leaves: without that an attempt that stood still once its
    call was written down sends after another attempt did, and after its key was forgotten."""
    found = explore(standing_still_before_it_sends(looks_up=looks_up, in_time=False)(STANDING_STILL))
    assert found.broken is not None
    assert found.broken.what == "I1: done twice for one intent: charge, charge, reserve, end"
    world = standing_still_before_it_sends(looks_up=looks_up)(STANDING_STILL)
    state = replay(world, found.broken.schedule)
    assert len(state.charges) == 1


def test_a_schedule_that_cannot_be_gone_says_where() -> None:
    """R42: a line that the code no longer comes to is told apart from one on which it breaks."""
    with pytest.raises(ValueError, match=r"word 3, '2r', cannot happen there; what can: 1 "):
        replayed("keyed: 1 1 2r")


def test_the_table_sums_up() -> None:
    """R42: what was gone through is told for each scenario and together."""
    lines = table([["keyed", 1200, 30, 9, 0.5], ["opaque", 300, 20, 8, 0.25]])
    assert [line.split() for line in lines[1:]] == [
        ["keyed", "1,200", "30", "9", "0.50"],
        ["opaque", "300", "20", "8", "0.25"],
        ["together", "1,500", "50", "0.75"],
    ]
