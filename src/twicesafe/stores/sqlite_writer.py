"""Group commit: whatever waits is written in one transaction, and nobody hears of it before it is on the disk.

Theory of operation. SQLite has one writer at a time and an fsync for each commit, so many small commits wait for each
other in vain. One thread owns the connection. Of each job it first performs the reads, outside any transaction: a
replay or a conflict needs no more and waits for no writer. What comes to a write is gathered, and as soon as the write
lock can be had all of it is written, committed once, and answered (I11). While others hold the lock the thread goes on
answering reads.

A job's steps make at most one effective write, so a statement that fails leaves nothing of its job behind and needs no
savepoint. Where SQLite gives up the whole transaction instead, every job is done again from its beginning, each alone.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, TypeAlias, TypeVar

from twicesafe.errors import AmbiguousWriteError, StoreError, StoreUnavailableError
from twicesafe.stores.forks import keep_for_ever
from twicesafe.stores.sqlite_connection import PAUSE, SqliteConnection, SqliteFile, is_busy
from twicesafe.stores.steps import Batch, Statement, Steps

R = TypeVar("R")
MakeSteps: TypeAlias = Callable[[], Steps[R]]

LARGEST_GROUP: Final = 256
"""Jobs in one transaction. More would save little and let the first of them wait."""


class Job:
    """Steps to be performed, and what became of them. Given to `Writer.submit` by whoever waits for it."""

    __slots__ = ("deadline", "error", "make_steps", "result", "step", "steps", "under_lock")

    def __init__(self, make_steps: MakeSteps[Any], *, under_lock: bool) -> None:
        self.make_steps = make_steps
        self.under_lock = under_lock
        self.steps: Steps[Any] = make_steps()
        self.step: Statement | None = None
        """The one to be performed next."""
        self.deadline = 0.0
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def abandoned(self) -> bool:
        """Nobody waits for it any more."""
        return False

    def fail(self, error: BaseException) -> None:
        """End it with an error."""
        self.steps.close()
        self.error = error

    def start_again(self) -> None:
        """Forget what was performed: SQLite has."""
        self.steps.close()
        self.steps, self.step = self.make_steps(), None
        self.result = self.error = None

    def outcome(self) -> Any:
        """Its result, or its error raised."""
        if self.error is not None:
            raise self.error
        return self.result


class _BlockingJob(Job):
    """A thread waits."""

    __slots__ = ("done",)

    def __init__(self, make_steps: MakeSteps[Any], *, under_lock: bool) -> None:
        super().__init__(make_steps, under_lock=under_lock)
        self.done = Lock()
        self.done.acquire()


class _AsyncJob(Job):
    """A task waits."""

    __slots__ = ("future", "loop")

    def __init__(self, make_steps: MakeSteps[Any], *, under_lock: bool) -> None:
        super().__init__(make_steps, under_lock=under_lock)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    @property
    def abandoned(self) -> bool:
        return self.future.cancelled()


class Writer:
    """Performs jobs for one file. Its thread starts with the first job, and again in a process forked from this one."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._lock = Lock()
        self._worker: _Worker | None = None
        self._pid = os.getpid()
        self._closed = False

    def run(self, make_steps: MakeSteps[R], *, under_lock: bool = False) -> R:
        """Perform the steps and wait. `under_lock`: all of them while other writers are kept out."""
        job = _BlockingJob(make_steps, under_lock=under_lock)
        self._submit(job)
        job.done.acquire()
        return job.outcome()  # type: ignore[no-any-return]

    async def arun(self, make_steps: MakeSteps[R], *, under_lock: bool = False) -> R:
        """`run`, for asyncio. Cancelled before its turn it does nothing; later, it stands as if its reply was lost."""
        job = _AsyncJob(make_steps, under_lock=under_lock)
        self._submit(job)
        await job.future
        return job.outcome()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
            if worker is not None:
                worker.queue.put(None)
        if worker is not None and self._pid == os.getpid():
            worker.thread.join()

    def _submit(self, job: Job) -> None:
        job.deadline = time.monotonic() + self._file.busy_seconds
        pid = os.getpid()
        if self._pid != pid:
            self._forked(pid)
        with self._lock:
            if self._closed:
                raise StoreUnavailableError(f"the store on {self._file.path} is closed")
            if self._worker is None:
                self._worker = _Worker(self._file)
            self._worker.queue.put(job)

    def _forked(self, pid: int) -> None:
        """The parent's thread is not here, nor is whoever held the lock; the parent's connection must not be used."""
        if self._worker is not None:
            keep_for_ever(self._worker)
        self._lock, self._worker, self._pid = Lock(), None, pid


class _Worker:
    """The thread, and what belongs to it alone: the connection, and the jobs that wait for the write lock."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._begin = file.sql("begin")
        self._commit = file.sql("commit")
        self._connection: SqliteConnection | None = None
        self._waiting: list[Job] = []
        self.queue: Final[SimpleQueue[Job | None]] = SimpleQueue()
        self.thread: Final = Thread(target=self._work, name="twicesafe-sqlite", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        stopping = False
        while self._waiting or not stopping:
            arrived = self._arrived()
            stopping = stopping or None in arrived
            jobs = [job for job in arrived if job is not None]
            try:
                self._waiting += self._read(jobs)
                if self._waiting:
                    self._waiting = self._write(self._waiting)
            except BaseException as error:  # noqa: BLE001 - nobody may wait for ever for what nobody foresaw
                self._give_up({*jobs, *self._waiting}, error)
        self._disconnect()

    def _give_up(self, jobs: Iterable[Job], error: BaseException) -> None:
        for job in jobs:
            job.fail(error)
        self._waiting = []
        self._disconnect()
        _answer(jobs)

    def _arrived(self) -> list[Job | None]:
        """What has been submitted. Waits for it, unless somebody waits for the write lock meanwhile."""
        arrived: list[Job | None] = []
        try:
            arrived.append(self.queue.get(block=not self._waiting))
            while len(arrived) < LARGEST_GROUP:
                arrived.append(self.queue.get_nowait())
        except Empty:
            pass
        return arrived

    def _read(self, jobs: list[Job]) -> list[Job]:
        """Perform what needs no lock. Answers those that need no more, gives back those that want to write."""
        connection = self._connected()
        finished, writing = [], []
        for job in jobs:
            if job.abandoned:
                job.steps.close()
            elif self._perform(connection, job, reading=True):
                finished.append(job)
            else:
                writing.append(job)
        _answer(finished)
        return writing

    def _write(self, waiting: list[Job]) -> list[Job]:
        """Write as many as go into one transaction; gives back those that still wait."""
        connection = self._connected()
        try:
            connection.once(self._begin)
        except sqlite3.Error as error:
            return self._not_begun(waiting, error)
        group, rest = waiting[:LARGEST_GROUP], waiting[LARGEST_GROUP:]
        if not self._write_together(connection, group):
            for job in group:
                self._write_alone(connection, job)
        _answer(group)
        return rest

    def _not_begun(self, waiting: list[Job], error: sqlite3.Error) -> list[Job]:
        now = time.monotonic()
        if not is_busy(error):
            # Perhaps the file was replaced: open it anew for the next ones.
            self._disconnect()
        late = [job for job in waiting if now >= job.deadline or not is_busy(error)]
        for job in late:
            job.fail(self._file.error(error, "begin"))
        _answer(late)
        still = [job for job in waiting if job.error is None]
        if still:
            time.sleep(PAUSE)
        return still

    def _write_together(self, connection: SqliteConnection, group: list[Job]) -> bool:
        """One transaction for all. False where SQLite gave it up and nothing of it stands."""
        for job in group:
            if job.abandoned:
                job.steps.close()
                continue
            self._perform(connection, job, reading=False)
            if not connection.in_transaction:
                return self._given_up(group)
        try:
            connection.once(self._commit)
        except (sqlite3.Error, StoreError) as error:
            meant = self._file.error(error, "commit", committing=True) if isinstance(error, sqlite3.Error) else error
            if not isinstance(meant, AmbiguousWriteError):
                return self._given_up(group, meant)
            for job in group:
                if job.error is None:
                    job.error = meant
        return True

    def _given_up(self, group: list[Job], error: StoreError | None = None) -> bool:
        if len(group) > 1:
            return False
        # Alone already.
        for job in group:
            if job.error is None:
                job.error = error or StoreUnavailableError("SQLite rolled the transaction back: nothing was changed")
        return True

    def _write_alone(self, connection: SqliteConnection, job: Job) -> None:
        if job.abandoned:
            return
        job.start_again()
        try:
            connection.perform(self._begin)
        except StoreError as error:
            job.fail(error)
            return
        self._write_together(connection, [job])

    def _perform(self, connection: SqliteConnection, job: Job, *, reading: bool) -> bool:
        """Go on with a job to its end, or up to its first write where `reading`. Whether it has ended."""
        step = job.step
        try:
            if step is None:
                step = _single(next(job.steps))
            while True:
                job.step = step
                if reading and (step.writes or job.under_lock):
                    return False
                step = _single(job.steps.send(connection.once(step)))
        except StopIteration as end:
            job.result = end.value
        except sqlite3.Error as error:
            if reading and is_busy(error):
                # Somebody is recovering the file after a crash.
                job.start_again()
                return False
            try:
                connection.fail(error, step or self._begin)
            except StoreError as meant:
                job.fail(meant)
        except BaseException as error:  # noqa: BLE001 - the job's own, and this thread must live
            job.fail(error)
        return True

    def _connected(self) -> SqliteConnection:
        if self._connection is None:
            self._connection = self._file.connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _single(step: Statement | Batch) -> Statement:
    assert type(step) is Statement, step
    return step


def _answer(jobs: Iterable[Job]) -> None:
    """Wake those who wait; a loop's tasks all at once. Whoever was woken before is left alone."""
    tasks: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for job in jobs:
        if isinstance(job, _BlockingJob):
            if job.done.locked():
                job.done.release()
        elif isinstance(job, _AsyncJob):
            tasks[job.loop].append(job.future)
    for loop, futures in tasks.items():
        try:
            loop.call_soon_threadsafe(_wake, futures)
        except RuntimeError:
            # The loop is closed, and whoever waited is gone with it.
            continue


def _wake(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
