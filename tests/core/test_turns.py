"""When an operation that broke off is tried again, decided by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.core.records import NOW, SECOND, standing_so
from twicesafe.core.lifecycle import Standing
from twicesafe.core.record import Effects, Record, RecordState
from twicesafe.core.turns import ATTEMPTS, attempt_of, goes_on_at_once, is_due, pause_before, shares, used_up


def broken_off(epoch: int, age: int = 3 * 3600) -> Record:
    """A resumable operation whose attempt of this epoch ended at NOW, so many seconds after the first began."""
    record = standing_so(Standing.STALE, effects=Effects.RESUMABLE, request=b"[]", epoch=epoch)
    return record._replace(lease_until=NOW, created_at=NOW - age * SECOND)


def test_pauses_grow_and_end_growing() -> None:
    """R27: a second first, twice as long each time, and never more than ten minutes."""
    pauses = [pause_before(attempt) // SECOND for attempt in range(1, ATTEMPTS + 1)]
    assert pauses[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert set(pauses[10:]) == {600}
    assert pause_before(10_000) == 600 * SECOND
    assert timedelta(hours=2) < timedelta(seconds=sum(pauses)) < timedelta(hours=4), "as its reason says"


@pytest.mark.parametrize(("epoch", "seconds"), [(1, 1), (4, 8), (ATTEMPTS, 600), (ATTEMPTS + 1, 1), (ATTEMPTS + 3, 4)])
def test_its_turn_comes_after_its_lease_and_its_pause(epoch: int, seconds: int) -> None:
    """R27, I12: to the microsecond, by the store's now; let go on by somebody, it begins with short pauses again."""
    assert not is_due(broken_off(epoch), NOW + seconds * SECOND - 1)
    assert is_due(broken_off(epoch), NOW + seconds * SECOND)


@pytest.mark.parametrize(("age", "seconds"), [(0, 1), (7, 7), (40, 40), (1000, 512)])
def test_callers_that_ask_often_do_not_make_a_worker_wait(age: int, seconds: int) -> None:
    """R27: ten attempts within seven seconds are its callers' doing; a worker waits no longer than that took."""
    assert not is_due(broken_off(10, age), NOW + seconds * SECOND - 1)
    assert is_due(broken_off(10, age), NOW + seconds * SECOND)


@pytest.mark.parametrize(
    ("point", "at_once"),
    [
        (None, True),
        ("2 done charge", True),
        ("2 open charge", True),
        ("2 unsent charge", False),
        ("1 done unsent x", True),
    ],
)
def test_what_was_settled_does_not_wait_and_what_is_sent_again_does(point: str | None, at_once: bool) -> None:
    """R26, R27: what a call gave is known now; one that a provider never answers is not asked without a pause."""
    assert goes_on_at_once(point) is at_once


def test_callers_that_ask_often_do_not_use_up_the_attempts() -> None:
    """I6, R27: as many attempts within a minute are no reason to give up; within hours they are."""
    assert not used_up(broken_off(ATTEMPTS, 60))
    assert used_up(broken_off(ATTEMPTS, 2 * 3600))


def test_what_no_worker_can_go_on_with_is_never_due() -> None:
    """R24, I6: an unknown outcome is for whoever knows it, and without its request there is nothing to run."""
    later = NOW + 3600 * SECOND
    assert not is_due(broken_off(1)._replace(state=RecordState.UNKNOWN), later)
    assert not is_due(broken_off(1)._replace(request=None), later)


def test_attempts_are_used_up_once_in_so_many() -> None:
    """I6, R27: held at the last one, and counted anew after that."""
    assert [epoch for epoch in range(1, 3 * ATTEMPTS) if used_up(broken_off(epoch))] == [ATTEMPTS, 2 * ATTEMPTS]
    assert (attempt_of(ATTEMPTS), attempt_of(ATTEMPTS + 1)) == (ATTEMPTS, 1)


@pytest.mark.parametrize(
    ("due", "lanes", "sizes"),
    [(0, 8, []), (1, 8, [1]), (31, 8, [1] * 31), (64, 8, [2] * 32), (9, 1, [2, 2, 2, 2, 1]), (5_000, 16, [20] * 250)],
)
def test_neighbours_are_shared_out_together(due: int, lanes: int, sizes: list[int]) -> None:
    """R27: every operation is in one share, in its order; no lane is idle for the size of shares, and none is large."""
    found = shares(range(due), lanes)
    assert [one for share in found for one in share] == list(range(due))
    assert [len(share) for share in found] == sizes
