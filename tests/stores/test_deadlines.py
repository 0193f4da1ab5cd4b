"""Bounded waits by one timer, and work that is not disturbed by a cancellation."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from twicesafe.stores.deadlines import Deadlines
from twicesafe.stores.deadlines_blocking import BlockingDeadlines
from twicesafe.stores.undisturbed import undisturbed

SOON, FAR = 0.02, 60.0


async def waits(deadlines: Deadlines, event: asyncio.Event) -> str:
    """What becomes of a wait for `event`."""
    try:
        with deadlines.wait():
            await event.wait()
    except TimeoutError:
        return "over"
    except asyncio.CancelledError:
        return "cancelled"
    return "done"


def test_each_wait_ends_when_its_time_is_over() -> None:
    """C8: whoever waits for a server that says nothing is told in time, one after the other and many at once."""

    async def trial() -> None:
        deadlines = Deadlines(SOON)
        for _ in range(3):
            assert await waits(deadlines, asyncio.Event()) == "over"
        assert await asyncio.gather(*(waits(deadlines, asyncio.Event()) for _ in range(20))) == ["over"] * 20
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        assert not deadlines.began and not deadlines.over

    asyncio.run(trial())


def test_what_comes_in_time_is_not_disturbed() -> None:
    """C8: a wait that ends in time leaves nothing behind that could end another."""

    async def trial() -> None:
        deadlines, event = Deadlines(SOON), asyncio.Event()
        event.set()
        assert [await waits(deadlines, event) for _ in range(100)] == ["done"] * 100
        assert not deadlines.began
        assert await waits(deadlines, asyncio.Event()) == "over"

    asyncio.run(trial())


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    """A1: who is cancelled while it waits is not told that its time was over."""

    async def trial() -> None:
        deadlines = Deadlines(FAR)
        task = asyncio.ensure_future(waits(deadlines, asyncio.Event()))
        await asyncio.sleep(0)
        task.cancel()
        assert await task == "cancelled"
        assert not deadlines.began

    asyncio.run(trial())


def test_a_cancellation_at_the_same_moment_is_not_lost() -> None:
    """A1: cancelled by its caller and out of time at once, a wait ends as cancelled."""

    async def trial() -> None:
        deadlines = Deadlines(FAR)
        task = asyncio.ensure_future(waits(deadlines, asyncio.Event()))
        await asyncio.sleep(0)
        deadlines.timeout = 0.0
        deadlines.look(asyncio.get_running_loop())
        task.cancel()
        assert await task == "cancelled"
        assert not deadlines.over

    asyncio.run(trial())


def test_another_loop_starts_anew() -> None:
    """C8: deadlines that were used under one event loop bound waits under the next."""
    deadlines = Deadlines(SOON)
    for _ in range(2):
        assert asyncio.run(waits(deadlines, asyncio.Event())) == "over"


@pytest.mark.parametrize("pauses", [0, 1, 3])
def test_work_goes_on_when_its_beginner_is_cancelled(pauses: int) -> None:
    """A1, C8: what has to be given back is given back, cancelled at whatever moment."""

    async def trial() -> None:
        done: list[int] = []
        going: set[asyncio.Task[None]] = set()
        go = asyncio.Event()

        async def work() -> None:
            for _ in range(pauses):
                await go.wait()
                await asyncio.sleep(0)
            done.append(1)

        task = asyncio.ensure_future(undisturbed(work(), going))
        await asyncio.sleep(0)
        assert len(going) == (pauses > 0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == (pauses > 0)
        go.set()
        if going:
            await asyncio.wait(set(going))
        assert done == [1] and not going

    asyncio.run(trial())


def test_what_goes_wrong_in_the_work_is_raised() -> None:
    """A1: an error of the work reaches whoever began it, before and after its first wait."""

    async def fails(*, after: bool) -> None:
        if after:
            await asyncio.sleep(0)
        raise ZeroDivisionError

    async def trial() -> None:
        for after in (False, True):
            with pytest.raises(ZeroDivisionError):
                await undisturbed(fails(after=after), set())

    asyncio.run(trial())


# --- in threads ------------------------------------------------------------------------------------------------------


@contextmanager
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends."""
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def hears(deadlines: BlockingDeadlines, here: socket.socket) -> bytes:
    """What is heard on a line. A driver takes its end for an error."""
    with deadlines.wait(here.fileno()):
        heard = here.recv(1)
        if not heard:
            raise ConnectionError("the line was ended")
        return heard


def test_a_silent_line_is_shut_when_its_time_is_over() -> None:
    """C8, K: who waits in a thread for a server that says nothing is told in time; who gets an answer gets that."""
    deadlines = BlockingDeadlines(SOON)
    for _ in range(3):
        with line() as (here, there):
            with pytest.raises(TimeoutError):
                hears(deadlines, here)
            assert there.recv(1) == b""
    patient = BlockingDeadlines(FAR)
    with line() as (here, there):
        there.send(b"x")
        assert hears(patient, here) == b"x"
    assert not deadlines.waits and not patient.waits


def test_only_lines_that_are_silent_for_too_long_are_shut() -> None:
    """C8: the one thread shuts what is over and nothing else, and says when it is wanted again."""
    deadlines = BlockingDeadlines(FAR)
    with line() as (old, old_there), line() as (new, new_there):
        first, second = deadlines.wait(old.fileno()), deadlines.wait(new.fileno())
        with second:
            first.__enter__()
            deadlines.waits = {first: 0.0} | deadlines.waits | {first: 0.0}
            assert 0 < deadlines.look() <= FAR
            assert old_there.recv(1) == b""
            with pytest.raises(TimeoutError):
                first.__exit__(ConnectionError, ConnectionError("the line was ended"), None)
            new_there.send(b"x")
            assert new.recv(1) == b"x"
    assert not deadlines.waits


def test_an_answer_that_came_at_the_last_moment_is_an_answer() -> None:
    """A7: what was heard before the line was shut is what the server did, and is not taken for silence."""
    deadlines = BlockingDeadlines(FAR)
    with line() as (here, there), deadlines.wait(here.fileno()):
        there.send(b"x")
        deadlines.waits[next(iter(deadlines.waits))] = 0.0
        deadlines.look()
        assert here.recv(1) == b"x"


def test_the_thread_ends_with_the_last_wait_and_begins_with_the_next() -> None:
    """C8: a store that is asked nothing costs no thread, and a wait after that is looked after again."""
    deadlines = BlockingDeadlines(SOON)
    for _ in range(3):
        with line() as (here, _there), pytest.raises(TimeoutError):
            hears(deadlines, here)
        thread = deadlines._thread
        if thread is not None:
            thread.join(30)
        assert deadlines._thread is None
