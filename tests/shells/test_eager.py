"""A task started eagerly behaves as a task, whether it ever waits or not."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any

import pytest

from twicesafe import eager


async def start(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    return eager.start(coroutine, asyncio.get_running_loop(), contextvars.copy_context())


def test_what_never_waits_is_over_at_once():
    """R14: it has run, what it raised is raised, and the caller is the current task again."""

    async def trial():
        ran: list[asyncio.Task[Any] | None] = []

        async def work(error: BaseException | None = None) -> None:
            ran.append(asyncio.current_task())
            if error is not None:
                raise error

        me = asyncio.current_task()
        assert await start(work()) is None
        with pytest.raises(ZeroDivisionError):
            await start(work(ZeroDivisionError()))
        assert len(ran) == 2
        assert me not in ran
        assert asyncio.current_task() is me

    asyncio.run(trial())


@pytest.mark.parametrize("error", [None, ZeroDivisionError(), asyncio.CancelledError()])
def test_who_waits_for_it_learns_of_its_end(error):
    """R14, H1: a task that never waited is done, for its callbacks and for background tasks that wait for its end."""

    async def trial():
        told = []
        seen = []

        async def work(*, watched: bool) -> None:
            task = asyncio.current_task()
            assert task is not None
            seen.append(task)
            if watched:
                task.add_done_callback(told.append)
            if error is not None:
                raise error

        for watched in (True, False):
            with nullcontext() if error is None else pytest.raises(type(error)):
                assert await start(work(watched=watched)) is None
        async with asyncio.timeout(30):
            await asyncio.wait(seen)
        assert told == seen[:1]
        assert [task.cancelled() for task in seen] == [isinstance(error, asyncio.CancelledError)] * 2

    asyncio.run(trial())


def test_it_is_one_task_from_its_first_step_to_its_last():
    """R14: cancel scopes and time-outs that begin in the first step and end in a later one see one current task."""

    async def trial():
        seen = []

        async def work() -> None:
            async with asyncio.timeout(30):
                seen.append(asyncio.current_task())
                await asyncio.sleep(0)
                seen.append(asyncio.current_task())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            seen.append(asyncio.current_task())

        task = await start(work())
        assert task is not None
        await task
        assert seen == [task] * 3

    asyncio.run(trial())


def test_an_error_of_the_first_wait_is_its_own():
    """K: a future of another loop is refused with the error that says so, and not with one about the task."""

    async def trial():
        other = asyncio.new_event_loop()
        try:
            stranger = other.create_future()

            async def work() -> None:
                await stranger

            task = await start(work())
            assert task is not None
            assert "Task" in repr(task)
            with pytest.raises(RuntimeError, match="different loop"):
                await task
        finally:
            other.close()

    asyncio.run(trial())


@pytest.mark.parametrize("waits", [False, True])
def test_who_cancels_itself_is_cancelled(waits):
    """A1c: cancelled by its own first step, what it then awaits is cancelled, and it counts as cancelled."""

    async def trial():
        child: list[asyncio.Future[None]] = []

        async def work() -> None:
            me = asyncio.current_task()
            assert me is not None
            me.cancel()
            if waits:
                child.append(asyncio.get_running_loop().create_future())
                await child[0]

        async def to_its_end() -> None:
            task = await start(work())
            assert task is not None
            await task

        with pytest.raises(asyncio.CancelledError):
            await to_its_end()
        assert all(future.cancelled() for future in child)

    asyncio.run(trial())
