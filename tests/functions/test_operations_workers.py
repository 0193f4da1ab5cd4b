"""Operations of several steps that nobody asks for again: workers go on with them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.functions.killing import killed
from tests.functions.shop import WINDOW, K, Shop
from twicesafe.core.turns import ATTEMPTS, pause_before
from twicesafe.errors import (
    InProgressError,
    KeyReusedError,
    OutcomeUnknownError,
)

ALL = ["reserve", "charged ch_1", "paid ch_2", "end"]


# --- workers ---------------------------------------------------------------------------------------------------------


def test_a_worker_leaves_live_operations_alone(shop: Shop) -> None:
    """I1, R27: a lease that lasts is somebody's."""
    rounds: list[Any] = []
    worker = shop.another()
    shop.operation(worker, remembers=WINDOW)
    shop.provider.after = lambda: rounds.append(worker.resume())
    shop.operation(remembers=WINDOW)(K, 100)
    assert [(found.done, found.failed) for found in rounds] == [(0, 0), (0, 0)]
    assert shop.runs == 1


def test_an_operation_that_keeps_failing_is_tried_with_pauses_and_held_in_the_end(shop: Shop) -> None:
    """R27, I6: nothing stays in progress for ever, and nothing is tried without end."""
    worker = shop.another()

    @worker.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> None:
        shop.runs += 1
        raise RuntimeError("always")

    with pytest.raises(RuntimeError):
        op()
    assert worker.resume().failed == 0, "not yet"
    for epoch in range(1, ATTEMPTS):
        shop.clock.advance(timedelta(microseconds=pause_before(epoch) + 1))
        assert worker.resume().failed == 1
    shop.clock.advance(timedelta(microseconds=pause_before(ATTEMPTS) + 1))
    assert worker.resume().held == 1
    assert shop.runs == ATTEMPTS
    with pytest.raises(OutcomeUnknownError):
        op()
    assert worker.resume()[:3] == (0, 0, 0)


def test_a_worker_that_does_not_know_an_operation_leaves_it_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R24: another process has its code."""
    killed(shop, monkeypatch, 6, performed=True, remembers=WINDOW)
    shop.clock.advance(timedelta(seconds=1))
    assert shop.another().resume() == (0, 0, 0, False)


def test_an_operation_under_way_refuses_others(shop: Shop) -> None:
    """I4, R11: the key's rules are those of every function."""
    buy = shop.operation(remembers=WINDOW)
    told: list[Any] = []

    def rivals() -> None:
        for cents in (100, 101):
            try:
                buy(K, cents)
            except (InProgressError, KeyReusedError) as error:
                told.append(type(error))

    shop.provider.after = rivals
    buy(K, 100)
    assert told == [InProgressError, KeyReusedError] * 2
    assert shop.rows() == ALL
