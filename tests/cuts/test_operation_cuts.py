"""Operations whose processes are killed at every step, on real databases: a retry, or a worker alone, ends each once.

Nothing happens between one step and the next, so killed behind the one is killed before the other.
"""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.cuts.conftest import World
from tests.cuts.market import CALLS, FIRMS, PHASES, STEPS, Firm

WAY = pytest.mark.parametrize("way", FIRMS)


def resumed_by_two(firm: Firm, way: str) -> int:
    """Two workers at one time, and how many operations they came to the end of."""
    workers = [firm.another() for _ in range(2)]
    found: list[Any]
    if way == "blocking":
        with ThreadPoolExecutor(2) as threads:
            found = list(threads.map(Firm.resume, workers))
    else:

        async def both() -> list[Any]:
            return await asyncio.gather(*(one.resuming() for one in workers))

        found = firm.end(both())
    assert [one[1:3] for one in found] == [(0, 0)] * 2
    return sum(one.done for one in found)


@WAY
def test_killed_at_every_step_it_ends_once(world: World, way: str) -> None:
    """R24, R25, R27, I1, I10, A7, B5: SIGKILL behind each step; its caller asks again, or nobody does and two workers
    go on: four rows and two charges, and one receipt for everybody."""
    # Before the first step, behind each of them, and when all was recorded but the caller was not told.
    retried = {f"{way}-retry-{number}": number for number in range(STEPS + 2)}
    alone = {f"{way}-alone-{number}": number for number in range(STEPS + 2)}
    orders = {**retried, **alone}
    assert world.killed(way, "resumable", orders) == [signal.SIGKILL] * len(orders)
    world.later(timedelta(seconds=35))
    with world.firm(way) as firm:
        receipts = {order: firm.end(firm.jobs["resumable"](order)) for order in retried}
        done = resumed_by_two(firm, way)
        for order in orders:
            assert world.rows(order) == PHASES, order
            for call in CALLS:
                assert len(world.market.provider.charges(f"{order} {call}")) == 1, (order, call)
        # One of them had come to its end.
        assert done == len(alone) - 1
        receipts |= {order: firm.end(firm.jobs["resumable"](order)) for order in alone}
        for order, receipt in receipts.items():
            assert receipt.split() == [world.market.provider.charges(f"{order} {call}")[0] for call in CALLS]
        assert {tuple(world.market.provider.asked(f"{order} charge")) for order in orders} == {
            ("charge",),
            ("charge", "charge"),
        }
