"""Cancellations under asyncio: whose wish they are, and what comes to its end all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from twicesafe.errors import StepGivenUpError

R = TypeVar("R")


def is_cancelled() -> bool:
    """Whether somebody wants this task to end. A CancelledError may come of a time-out as well, which is over."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@contextmanager
def given_up() -> Iterator[None]:
    """A cancellation that ended a step earlier, and was taken for a time-out, is none of the task that goes on."""
    try:
        yield
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise StepGivenUpError(
            "a step was given up for a time-out, so nobody knows yet what the operation comes to: let the time-out end "
            "it, and ask again with the same key"
        ) from error


async def seen_through(
    work: Awaitable[R], meanwhile: Callable[[asyncio.Future[Any]], object] | None = None
) -> tuple[R, asyncio.CancelledError | None]:
    """Whatever cancels the caller, `work` comes to its end. What it gave, and the cancellation that came meanwhile.

    `meanwhile` is given the work's task at each cancellation.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(_working(work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await ended(task)
        except asyncio.CancelledError as error:
            cancelled = error
            if meanwhile is not None:
                meanwhile(task)
    if cancelled is not None and task.exception() is not None:
        raise cancelled from task.exception()
    return task.result(), cancelled


async def _working(work: Awaitable[R]) -> R:
    return await work


def ended(task: asyncio.Task[Any]) -> asyncio.Future[None]:
    """Done when the task is. Whoever is cancelled meanwhile cancels this alone. asyncio.wait takes thrice as long."""
    done = task.get_loop().create_future()
    task.add_done_callback(lambda _: None if done.done() else done.set_result(None))
    return done
