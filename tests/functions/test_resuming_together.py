"""Workers that look at the same operations at the same time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.functions.shop import Shop
from twicesafe.core.claims import Claim, Claimed
from twicesafe.once import Once

MANY, SHARE = 20, 5
"""A quarter of what one lane finds."""


def broken_off(shop: Shop, count: int) -> None:
    """So many operations, that failed before their first step."""
    once = shop.another()

    @once.operation(key=lambda number: f"order-{number}", effects="resumable", name="op")
    def op(number: int) -> None:
        raise RuntimeError

    for number in range(count):
        with pytest.raises(RuntimeError):
            op(number)
    shop.clock.advance(timedelta(seconds=2))


def worker(shop: Shop, done: Counter[int], meanwhile: Any = lambda: None) -> Once:
    """A process that can go on with them; `meanwhile` happens during its first."""
    once, waiting = shop.another(), [meanwhile]

    @once.operation(key=lambda number: f"order-{number}", effects="resumable", name="op")
    def op(number: int) -> None:
        done[number] += 1
        if waiting:
            waiting.pop()()

    return once


def test_workers_that_meet_leave_each_other_the_neighbours(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R27, I1: each operation is done once, and two workers meet once in a share, not at each operation."""
    broken_off(shop, MANY)
    done: Counter[int] = Counter()
    second = worker(shop, done)
    rounds: list[Any] = []
    first = worker(shop, done, lambda: rounds.append(second.resume()))
    met, claim = [], shop.store.claim

    def watched(wanted: Claim) -> Any:
        found = claim(wanted)
        if not isinstance(found, Claimed):
            met.append(found.verdict)
        return found

    seen = shop.store.outstanding()
    with monkeypatch.context() as patched:
        patched.setattr(shop.store, "claim", watched)
        patched.setattr(shop.store, "outstanding", lambda *_: seen)
        rounds.append(first.resume())
    assert set(done) == set(range(MANY))
    assert set(done.values()) == {1}
    assert [round_.done for round_ in rounds] == [MANY - SHARE, SHARE]
    assert len(met) == MANY // SHARE


def test_what_another_worker_left_in_a_share_is_taken_up_by_the_next_round(shop: Shop) -> None:
    """R27: whoever was at it and left it undone leaves it to the next look, by anybody."""
    broken_off(shop, 4)
    done: Counter[int] = Counter()

    class Gone(BaseException):
        """The process dies."""

    def die() -> None:
        raise Gone

    with pytest.raises(Gone):
        worker(shop, done, die).resume()
    shop.clock.advance(timedelta(minutes=1))
    assert worker(shop, done).resume().done == 4
    assert sorted(done.values()) == [1, 1, 1, 2]
