"""Bounded waits under asyncio, by one timer for all of them: asyncio.timeout makes and cancels one for each.

with deadlines.wait():
    await something
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any


class Deadlines:
    """Waits of at most `timeout` seconds, each of which ends in a TimeoutError then. One at a time in each task."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._began: dict[asyncio.Task[Any], float] = {}
        """When each task began to wait, the oldest first."""
        self._over: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> _Wait:
        """What is awaited in it is awaited for `timeout` seconds at most."""
        return _Wait(self)

    def _begin(self, task: asyncio.Task[Any]) -> None:
        loop = task.get_loop()
        if self._loop is not loop:
            self._loop, self._timer = loop, None
        now = self._began[task] = loop.time()
        if self._timer is None:
            self._timer = loop.call_at(now + self._timeout, self._look, loop)

    def _end(self, task: asyncio.Task[Any]) -> bool:
        """Whether its time was over, and its cancellation our doing."""
        self._began.pop(task, None)
        if task not in self._over:
            return False
        self._over.discard(task)
        return True

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        latest = loop.time() - self._timeout
        for task, began in list(self._began.items()):
            if task.get_loop() is not loop:
                del self._began[task]
            elif began > latest:
                self._timer = loop.call_at(began + self._timeout, self._look, loop)
                return
            else:
                del self._began[task]
                self._over.add(task)
                task.cancel()


class _Wait:
    """One wait of one task."""

    __slots__ = ("_cancelling", "_deadlines", "_task")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a bounded wait needs a task that waits")
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        self._deadlines._begin(task)  # noqa: SLF001 - one thing in two classes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        over = self._deadlines._end(self._task)  # noqa: SLF001
        if over and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            # Nobody else has asked for it.
            raise TimeoutError from error
