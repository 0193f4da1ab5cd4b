"""The reaper: bounded batches with pauses, a sweep for stale claims, and nothing that ends it but its owner."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claimed
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Ownership, RecordState
from twicesafe.errors import ConfigurationError, StoreUnavailableError
from twicesafe.observe import Event
from twicesafe.reaper import AsyncReaper, Reaped, Reaper
from twicesafe.stores.contract import Swept
from twicesafe.stores.memory import MemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import ManualClock

RETENTION = timedelta(microseconds=KEY)


class Batches:
    """A store that has `rows` expired records and `records` in all, and takes `takes` seconds for each 1,000 rows."""

    transactional = False

    def __init__(self, rows: int = 0, records: int = 0, takes: float = 0.0) -> None:
        self.rows = rows
        self.records = records
        self.takes = takes
        self.now = 0.0
        self.asked: list[tuple[str, float]] = []
        self.swept = 0
        self.fails = 0

    def purge(self, limit: int = 1000) -> int:
        self.asked.append(("purge", limit))
        if self.fails:
            self.fails -= 1
            raise StoreUnavailableError("down")
        done = min(limit, self.rows)
        self.rows -= done
        self.now += done * self.takes / 1000
        return done

    def settle_stale(self, look_at: int = 20_000) -> Swept:
        self.asked.append(("sweep", look_at))
        self.swept += look_at
        return Swept(1, self.swept < self.records)

    def clock(self) -> float:
        return self.now


class AsyncBatches:
    """The same, for asyncio."""

    transactional = False

    def __init__(self, store: Batches) -> None:
        self._store = store

    async def purge(self, limit: int = 1000) -> int:
        return self._store.purge(limit)

    async def settle_stale(self, look_at: int = 20_000) -> Swept:
        return self._store.settle_stale(look_at)


class Waits(threading.Event):
    """An event whose waits pass at once and are written down; it is set after `last` of them."""

    def __init__(self, asked: list[tuple[str, float]], last: int | None = None) -> None:
        super().__init__()
        self._asked = asked
        self._left = last

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._asked.append(("pause", timeout))
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.set()
        return self.is_set()


def one_round(store: Batches, kind: str, **settings: Any) -> Reaped:
    """A round by either kind."""
    pauses = Waits(store.asked)
    settings = {"batch": 1000, "batch_time": timedelta(milliseconds=100), **settings}
    if kind == "blocking":
        found = Reaper(store, clock=store.clock, **settings).run_once(pauses)  # type: ignore[arg-type]
        assert found is not None
        return found

    async def sleep(seconds: float) -> None:
        pauses.wait(seconds)

    return asyncio.run(AsyncReaper(AsyncBatches(store), clock=store.clock, sleep=sleep, **settings).run_once())  # type: ignore[arg-type]


BOTH = pytest.mark.parametrize("kind", ["blocking", "asyncio"])


@BOTH
def test_a_round_purges_in_batches_with_a_pause_after_each(kind: str) -> None:
    """R20: 2,500 rows are three batches of at most 1,000, paused between, and then comes one sweep."""
    store = Batches(rows=2500, records=100)
    assert one_round(store, kind, pause=timedelta(seconds=2)) == Reaped(2500, 1)
    assert store.rows == 0
    assert store.asked == [
        ("purge", 1000), ("pause", 2.0), ("purge", 1000), ("pause", 2.0), ("purge", 1000), ("pause", 2.0),
        ("sweep", 20_000),
    ]  # fmt: skip


@BOTH
def test_a_batch_that_takes_too_long_makes_the_next_one_smaller(kind: str) -> None:
    """R20: where 1,000 rows take a second and 100 ms are the bound, batches come down to what keeps it, and stay."""
    store = Batches(rows=3000, takes=1.0)
    one_round(store, kind, batch_time=timedelta(milliseconds=100))
    sizes = [size for what, size in store.asked if what == "purge"]
    assert store.rows == 0
    assert sizes[:5] == [1000, 500, 250, 125, 62]
    assert set(sizes[5:]) == {62}


@BOTH
def test_it_rests_as_long_as_it_worked(kind: str) -> None:
    """R20: where a batch takes 4 s, so does the pause after it, for others to have half of the database at least."""
    store = Batches(rows=1500, takes=4.0)
    one_round(store, kind, batch_time=timedelta(minutes=1), pause=timedelta(seconds=1))
    assert store.asked[:4] == [("purge", 1000), ("pause", 4.0), ("purge", 1000), ("pause", 2.0)]


@BOTH
def test_batches_grow_again_when_the_store_is_quick_again(kind: str) -> None:
    """R20: one slow batch is not held against the store for ever."""
    store = Batches(rows=100_000)
    slow = iter([1.0])
    purge = store.purge

    def once_slow(limit: int = 1000) -> int:
        store.now += next(slow, 0.0)
        return purge(limit)

    store.purge = once_slow  # type: ignore[method-assign]
    one_round(store, kind)
    assert [size for what, size in store.asked if what == "purge"][:4] == [1000, 500, 1000, 1000]


@BOTH
def test_a_sweep_goes_on_until_it_has_come_past_every_record(kind: str) -> None:
    """R27: portions follow one another, paused between, until the store says that there are no more."""
    store = Batches(records=1000)
    assert one_round(store, kind, batch=10) == Reaped(0, 5)
    assert [size for what, size in store.asked if what == "sweep"] == [200] * 5


def test_a_failing_store_is_told_of_and_tried_again() -> None:
    """R27, R44: a store that is down for a while ends nothing but the round; the next one does the work."""
    store = Batches(rows=5, records=1)
    store.fails = 2
    told: list[Event] = []
    stopping = Waits(store.asked, last=5)
    Reaper(store, batch=1000, observer=told.append, every=timedelta(minutes=1)).run(stopping)  # type: ignore[arg-type]
    assert store.rows == 0
    assert [event.name for event in told][:3] == ["reaper.failed", "reaper.failed", "reaper.settled_stale"]
    assert store.asked[:4] == [("purge", 1000), ("pause", 60.0), ("purge", 1000), ("pause", 60.0)]


def test_a_failing_store_is_told_of_and_tried_again_under_asyncio() -> None:
    """R27, R44: the same in a task, until it is cancelled."""
    store = Batches(rows=5, records=1)
    store.fails = 2
    told: list[Event] = []

    async def sleep(seconds: float) -> None:
        if store.swept and seconds == 60.0:
            raise asyncio.CancelledError

    async def trial() -> None:
        reaper = AsyncReaper(AsyncBatches(store), observer=told.append, sleep=sleep)  # type: ignore[arg-type]
        with pytest.raises(asyncio.CancelledError):
            await reaper.run()

    asyncio.run(trial())
    assert store.rows == 0
    assert [event.name for event in told] == ["reaper.failed", "reaper.failed", "reaper.settled_stale"]


def test_a_store_that_is_asked_to_stop_ends_within_a_batch() -> None:
    """R20: a stop during the pause leaves the rest for another time."""
    store = Batches(rows=5000)
    assert Reaper(store, batch=1000).run_once(Waits(store.asked, last=1)) is None  # type: ignore[arg-type]
    assert store.rows == 4000


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0}, {"batch": True}, {"pause": 1}, {"pause": timedelta(seconds=-1)},
        {"batch_time": timedelta(0)}, {"every": None},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_settings_are_refused_at_once(wrong: dict[str, Any]) -> None:
    """R20: a setting that cannot be meant is an error that names it, where it is made."""
    (name,) = wrong
    for kind in (Reaper, AsyncReaper):
        make: Callable[..., object] = kind
        with pytest.raises(ConfigurationError, match=name):
            make(MemoryStore(), **wrong)


class OnlyPurges:
    """A store of the contract and no more."""

    def __init__(self, store: Batches) -> None:
        self.purge = store.purge


def test_a_store_that_cannot_find_stale_claims_is_purged_all_the_same() -> None:
    """R20: what a store does not have is not asked of it, and the round says so."""
    store = Batches(rows=5)
    assert Reaper(OnlyPurges(store)).run_once() == Reaped(5, None)  # type: ignore[arg-type]
    assert store.rows == 0


# --- on a database ---------------------------------------------------------------------------------------------------


def won(found: object) -> Ownership:
    """The claim was won."""
    assert isinstance(found, Claimed)
    return found.ownership


def test_after_a_round_nothing_expired_is_left_and_nothing_stays_in_progress(tmp_path: Path) -> None:
    """R20, R27, I6: expired rows are gone, a lost opaque claim is unknown, and what is alive is as it was."""
    clock = ManualClock()
    store = SqliteStore(tmp_path / "records.db", clock=clock)
    store.apply_schema()
    for n in range(20):
        store.complete(won(store.claim(wish(f"old-{n}"))), ANSWER, KEY, BODY)
    clock.advance(RETENTION)
    lost = won(store.claim(wish("lost", effects=Effects.OPAQUE)))
    done = won(store.claim(wish("done")))
    store.complete(done, ANSWER, KEY, KEY)
    clock.advance(timedelta(minutes=5))
    live = won(store.claim(wish("live", effects=Effects.OPAQUE)))
    assert Reaper(store, batch=7, pause=timedelta(0)).run_once() == Reaped(20, 1)
    assert [store.read(own.digest).record is None for own in (lost, done, live)] == [False, False, False]
    held = store.read(lost.digest).record
    assert held is not None and held.state is RecordState.UNKNOWN
    again = store.claim(wish("done"))
    assert not isinstance(again, Claimed) and again.verdict is Verdict.REPLAY
    store.renew(live, 1_000_000)
    store.close()


def test_two_reapers_and_a_stream_of_claims_do_each_other_no_harm(tmp_path: Path) -> None:
    """R20, I1: two at once on one file, in two processes' stores, while claims are made: each expired row goes once."""
    clock = ManualClock()
    path = tmp_path / "records.db"

    async def trial() -> None:
        store, other = AsyncSqliteStore(path, clock=clock), AsyncSqliteStore(path, clock=clock)
        await store.apply_schema()
        for n in range(60):
            await store.complete(won(await store.claim(wish(f"key-{n}"))), ANSWER, KEY, BODY)
        clock.advance(RETENTION)

        async def claims() -> list[Ownership]:
            return [won(await store.claim(wish(f"key-{n}"))) for n in range(30)]

        one, two, owned = await asyncio.gather(
            AsyncReaper(store, batch=5, pause=timedelta(0)).run_once(),
            AsyncReaper(other, batch=5, pause=timedelta(0)).run_once(),
            claims(),
        )
        assert 30 <= one.purged + two.purged <= 60
        for own in owned:
            await store.renew(own, 1_000_000)
        await other.aclose()
        await store.aclose()

    asyncio.run(trial())
