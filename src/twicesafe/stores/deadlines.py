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
        self.timeout = timeout
        self.began: dict[asyncio.Task[Any], float] = {}
        """When each task began to wait, the oldest first."""
        self.over: set[asyncio.Task[Any]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.timer: asyncio.TimerHandle | None = None

    def wait(self) -> _Wait:
        """What is awaited in it is awaited for `timeout` seconds at most."""
        return _Wait(self)

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        self.timer = None
        latest = loop.time() - self.timeout
        for task, began in list(self.began.items()):
            if task.get_loop() is not loop:
                del self.began[task]
            elif began > latest:
                self.timer = loop.call_at(began + self.timeout, self.look, loop)
                return
            else:
                del self.began[task]
                self.over.add(task)
                task.cancel()


class _Wait:
    """One wait of one task."""

    __slots__ = ("_cancelling", "_deadlines", "_task")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines

    def __enter__(self) -> None:
        deadlines, loop = self._deadlines, asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a bounded wait needs a task that waits")
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        if deadlines.loop is not loop:
            deadlines.loop, deadlines.timer = loop, None
        now = deadlines.began[task] = loop.time()
        if deadlines.timer is None:
            deadlines.timer = loop.call_at(now + deadlines.timeout, deadlines.look, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadlines, task = self._deadlines, self._task
        deadlines.began.pop(task, None)
        if task in deadlines.over:
            deadlines.over.discard(task)
            if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
                # Nobody else has asked for it.
                raise TimeoutError from error
