"""Takes away what has ended, and ends what was left behind. Nothing but space and stale claims depends on it.

    Reaper(store).run(stopping)          in a thread of its own, until the event is set
    await AsyncReaper(store).run()       in a task of its own, until it is cancelled
    Reaper(store).run_once()             from a timer of yours

One round deletes expired records and bodies in small batches with a pause after each (R20), and then sweeps once over
the records for claims whose owner is gone (R27). A batch that took longer than it may is followed by a smaller one, so
none holds its rows for long. Batches skip the rows that somebody is busy with and every change is conditioned on what
was seen, so any number of reapers may run beside any number of claims; one is enough.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from datetime import timedelta
from typing import Final, NamedTuple, TypeAlias, cast

from twicesafe.errors import ConfigurationError, StoreError
from twicesafe.observe import Event, Observer, counts, log_events, tell
from twicesafe.stores.contract import AsyncSettlesStale, AsyncStore, SettlesStale, Store, Swept

__all__ = ["AsyncReaper", "Reaped", "Reaper"]

DEFAULT_BATCH: Final = 100
"""Rows in one statement at most. Its log is written at once, and other commits wait for that: a thousand rows, each in
a page of its own, held them up for 50 ms."""

DEFAULT_BATCH_TIME: Final = timedelta(milliseconds=20)
"""What is deleted in one statement is locked until its end. A claim that wants one of these rows waits no longer."""

DEFAULT_PAUSE: Final = timedelta(milliseconds=20)
"""After each batch, and no less than the batch took: the reaper is idle half of the time or more, however slow the
database is. 0 is no rest at all."""

DEFAULT_EVERY: Final = timedelta(minutes=1)
"""From the end of a round to the next: retention is kept in whole minutes, and a stale claim waits no longer."""

SMALLEST: Final = 32
"""The smallest batch is this part of the largest."""

LOOKED_AT: Final = 20
"""Records looked at for stale claims in the place of one that is deleted. Reading in order costs that much less."""


class Reaped(NamedTuple):
    """What one round came to. `settled`: stale claims that were ended; None where the store has no way to find them."""

    purged: int
    settled: int | None


class _Purge(NamedTuple):
    limit: int


class _Sweep(NamedTuple):
    look_at: int


class _Pause(NamedTuple):
    seconds: float


_Step: TypeAlias = _Purge | _Sweep | _Pause


class _Settings(NamedTuple):
    batch: int
    batch_time: float
    pause: float

    @classmethod
    def checked(cls, batch: int, batch_time: timedelta, pause: timedelta) -> _Settings:
        given: object = batch
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise ConfigurationError(f"batch must be a number of rows, 1 or more, not {batch!r}")
        return cls(
            batch,
            _seconds("batch_time", batch_time, timedelta(milliseconds=1)),
            _seconds("pause", pause, timedelta(0)),
        )


def _seconds(name: str, value: object, least: timedelta) -> float:
    if not isinstance(value, timedelta) or value < least:
        raise ConfigurationError(f"{name} must be a timedelta of at least {least}, not {value!r}")
    return value.total_seconds()


def _round(settings: _Settings, *, sweeps: bool) -> Generator[_Step, tuple[int, bool, float], Reaped]:
    """One round. Sent, for each step: how many rows it touched, whether there is more, and the seconds it took."""
    most, at_most, pause = settings
    size = most
    purged = settled = 0
    while True:
        touched, _, took = yield _Purge(size)
        purged += touched
        if touched < size:
            break
        size = _next_size(size, most, took, at_most)
        yield _Pause(_rest(pause, took))
    if not sweeps:
        return Reaped(purged, None)
    most *= LOOKED_AT
    size = most
    while True:
        yield _Pause(_rest(pause, took))
        ended, more, took = yield _Sweep(size)
        settled += ended
        if not more:
            return Reaped(purged, settled)
        size = _next_size(size, most, took, at_most)


def _rest(pause: float, took: float) -> float:
    return max(pause, took) if pause else 0.0


def _next_size(size: int, most: int, took: float, at_most: float) -> int:
    """Half of it after a batch that took too long, twice as many after one that took less than half of what it may."""
    if took > at_most:
        # A statement takes its time even for one row: below this, smaller ones would only be more of them.
        return max(1, most // SMALLEST, size // 2)
    return min(most, size * 2) if took < at_most / 2 else size


class Reaper:
    """Reaps a Store in blocking calls. One object serves one thread.

    `batch` rows at most are deleted in one statement, fewer where that takes longer than `batch_time`; `pause` follows
    each, and `every` each round. Failures of the store are told to `observer`, and tried again in the next round.
    """

    def __init__(
        self,
        store: Store,
        *,
        batch: int = DEFAULT_BATCH,
        batch_time: timedelta = DEFAULT_BATCH_TIME,
        pause: timedelta = DEFAULT_PAUSE,
        every: timedelta = DEFAULT_EVERY,
        observer: Observer = log_events,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._settings = _Settings.checked(batch, batch_time, pause)
        self._every = _seconds("every", every, timedelta(0))
        self._observer = observer
        self._clock = clock
        self._settle_stale = cast("SettlesStale", store).settle_stale if hasattr(store, "settle_stale") else None

    def run_once(self, stopping: threading.Event | None = None) -> Reaped | None:
        """One round: all that has ended by now is gone, all stale claims that can be found are ended.

        None where `stopping` was set before its end. StoreError of the store's: what was done until then stands.
        """
        wait = threading.Event() if stopping is None else stopping
        steps = _round(self._settings, sweeps=self._settle_stale is not None)
        try:
            step = next(steps)
            while True:
                began = self._clock()
                found = 0, False
                match step:
                    case _Purge(limit):
                        found = _purged(self._observer, self._store.purge(limit))
                    case _Sweep(look_at):
                        assert self._settle_stale is not None
                        found = _told(self._observer, self._settle_stale(look_at))
                    case _Pause(seconds):
                        if wait.wait(seconds):
                            return None
                step = steps.send((*found, self._clock() - began))
        except StopIteration as end:
            return cast("Reaped", end.value)

    def run(self, stopping: threading.Event) -> None:
        """Round after round until `stopping` is set, which ends it within a batch."""
        while not stopping.is_set():
            try:
                self.run_once(stopping)
            except StoreError as error:
                _tell_failed(self._observer, error)
            stopping.wait(self._every)


class AsyncReaper:
    """Reaper, for asyncio."""

    def __init__(
        self,
        store: AsyncStore,
        *,
        batch: int = DEFAULT_BATCH,
        batch_time: timedelta = DEFAULT_BATCH_TIME,
        pause: timedelta = DEFAULT_PAUSE,
        every: timedelta = DEFAULT_EVERY,
        observer: Observer = log_events,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._settings = _Settings.checked(batch, batch_time, pause)
        self._every = _seconds("every", every, timedelta(0))
        self._observer = observer
        self._clock = clock
        self._sleep = sleep
        self._settle_stale = cast("AsyncSettlesStale", store).settle_stale if hasattr(store, "settle_stale") else None

    async def run_once(self) -> Reaped:
        """See Reaper.run_once. Cancelled it stops within a batch."""
        steps = _round(self._settings, sweeps=self._settle_stale is not None)
        try:
            step = next(steps)
            while True:
                began = self._clock()
                found = 0, False
                match step:
                    case _Purge(limit):
                        found = _purged(self._observer, await self._store.purge(limit))
                    case _Sweep(look_at):
                        assert self._settle_stale is not None
                        found = _told(self._observer, await self._settle_stale(look_at))
                    case _Pause(seconds):
                        await self._sleep(seconds)
                step = steps.send((*found, self._clock() - began))
        except StopIteration as end:
            return cast("Reaped", end.value)

    async def run(self) -> None:
        """Round after round until cancelled."""
        while True:
            try:
                await self.run_once()
            except StoreError as error:
                _tell_failed(self._observer, error)
            await self._sleep(self._every)


def _told(observer: Observer, swept: Swept) -> tuple[int, bool]:
    """Somebody's server died: what became unknown waits for a reconciler or an operator (I6)."""
    if swept.settled:
        tell(observer, Event("reaper.settled_stale", "", "", loud=True, amount=swept.settled))
    return swept.settled, swept.more


def _purged(observer: Observer, records: int) -> tuple[int, bool]:
    if records and counts(observer):
        tell(observer, Event("reaper.purged", "", "", loud=False, amount=records))
    return records, False


def _tell_failed(observer: Observer, error: StoreError) -> None:
    tell(observer, Event("reaper.failed", "", "", loud=True, error=error))
