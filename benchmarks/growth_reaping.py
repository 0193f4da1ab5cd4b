"""Claims on PostgreSQL while expired records are reaped beside them.

Claims and answers arrive at half of the rate that the store manages, each on its own time, and a reaper takes away the
oldest tenth of the table, which has expired: `floor` is the 99th percentile of a claim's time in windows before and
after, `reaping` in windows during it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
import time

from benchmarks.measure import PACE, Row, row
from benchmarks.statements import ANSWER, DAY, LINES, wish
from twicesafe import Effects, Policy
from twicesafe.core.claims import Claimed
from twicesafe.core.record import Ownership, StoredResponse
from twicesafe.reaper import Reaper
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.psycopg import PsycopgStore

TASKS = 16
WINDOW = 3.0
"""Seconds over which a percentile is taken."""
QUIET = 2
"""Windows before the reaper starts, and after it has ended."""
LONGEST = 15.0
"""Seconds after which reaping is not waited for any more."""
RESPONSE = StoredResponse(201, LINES, ANSWER)
POLICY = Policy(effects=Effects.OPAQUE)


async def claim(store: AsyncpgStore) -> Ownership:
    """A first claim of a new key."""
    won = await store.claim(wish(POLICY))
    assert type(won) is Claimed
    return won.ownership


async def most(store: AsyncpgStore, seconds: float) -> float:
    """Claims with their answers per second, as many as there can be."""
    done = 0
    end = time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await store.complete(await claim(store), RESPONSE, DAY, DAY)
            done += 1

    await asyncio.gather(*(worker() for _ in range(TASKS)))
    return done / seconds


class Arrivals:
    """Claims that arrive at a steady rate, whatever became of those before, and how long each took."""

    def __init__(self, store: AsyncpgStore, rate: float, window: float) -> None:
        self._store = store
        self._rate = rate
        self._window = window
        self._running: set[asyncio.Task[None]] = set()

    async def window(self) -> float:
        """The 99th percentile, in milliseconds, of claims that were due within one window."""
        took: list[float] = []
        began = time.perf_counter()
        for number in range(int(self._rate * self._window)):
            due = began + number / self._rate
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(self._one(due, took))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        await asyncio.gather(*self._running)
        return statistics.quantiles(took, n=100)[-1] * 1000

    async def _one(self, due: float, took: list[float]) -> None:
        own = await claim(self._store)
        took.append(time.perf_counter() - due)
        await self._store.complete(own, RESPONSE, DAY, DAY)


class Counted(PsycopgStore):
    """Knows how many records it took away."""

    purged = 0

    def purge(self, limit: int = 1000) -> int:
        touched = super().purge(limit)
        self.purged += touched
        return touched


def reap(url: str, stopping: threading.Event) -> int:
    """One round of the reaper as it comes, or what there is time for; how many records it took away."""
    store = Counted(url, pool_size=1)
    Reaper(store).run_once(stopping)
    store.close()
    return store.purged


async def measured(store: AsyncpgStore, url: str) -> list[Row]:
    """On a store with many records, a tenth of them expired; `url` leads to the same."""
    window = WINDOW / PACE.less(10, 1) if PACE.quick else WINDOW
    rate = await most(store, window) / 2
    arrivals = Arrivals(store, rate, window)
    await arrivals.window()
    quiet = [await arrivals.window() for _ in range(QUIET)]
    reaping, began = [], time.perf_counter()
    stopping = threading.Event()
    reaper = asyncio.create_task(asyncio.to_thread(reap, url, stopping))
    while not reaping or (not reaper.done() and time.perf_counter() < began + LONGEST):
        reaping.append(await arrivals.window())
    stopping.set()
    purged = await reaper
    took = time.perf_counter() - began
    quiet += [await arrivals.window() for _ in range(QUIET)]
    print(f"reaped {purged:,} records in {took:.0f} s beside {rate:,.0f} claims/s", file=sys.stderr)
    case, floor = "PostgreSQL, p99 of a claim at half load", statistics.median(quiet)
    return [
        row(case, "floor", "ms", quiet, 1.0),
        row(case, "twicesafe, reaping", "ms", reaping, statistics.median(reaping) / floor),
    ]
