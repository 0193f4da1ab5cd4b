"""Workers inside a process: round after round of each part, until they are stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.functions.shop import K, Shop
from twicesafe import worker as module
from twicesafe.errors import ConfigurationError
from twicesafe.once import AsyncOnce, Once
from twicesafe.outbox.relay import Relay
from twicesafe.reaper import AsyncReaper, Reaper
from twicesafe.reconcile import AsyncReconcilers, Reconcilers
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.testing import ManualClock
from twicesafe.worker import Worker

AT_ONCE = timedelta(0)


async def until(true: Callable[[], bool]) -> None:
    """Let others go on until it is so."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - threads make it so
            await asyncio.sleep(0)


def test_it_goes_on_with_what_broke_off(shop: Shop) -> None:
    """R24, R27: no client is needed."""
    once = shop.another()
    runs: list[int] = []

    @once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> int:
        runs.append(1)
        if len(runs) == 1:
            raise TimeoutError
        return 7

    with pytest.raises(TimeoutError):
        op()
    shop.clock.advance(timedelta(seconds=2))

    async def trial() -> None:
        worker = Worker(once, every=AT_ONCE)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(runs) == 2 and worker.health()[0].rounds > 0)
        worker.stop()
        await running

    asyncio.run(trial())
    assert op() == 7
    assert len(runs) == 2


def test_each_kind_of_part_has_its_rounds() -> None:
    """R26, R27: blocking parts in threads, asynchronous ones in the loop, all beside one another."""
    blocking, store = MemoryStore(), AsyncMemoryStore()

    async def trial() -> None:
        worker = Worker(
            Once(blocking, scope="s"), Reconcilers(blocking), Reaper(blocking), AsyncOnce(store, scope="s"),
            AsyncReconcilers(store), AsyncReaper(store, pause=AT_ONCE), every=AT_ONCE,
        )  # fmt: skip
        running = asyncio.create_task(worker.run())
        await until(lambda: all(part.rounds for part in worker.health()))
        assert [part.part for part in worker.health()] == ["resume", "reconcile", "reap"] * 2
        assert not any(part.late for part in worker.health())
        worker.stop()
        await running

    asyncio.run(trial())


class Failing(Once):
    """Its rounds fail until they are let."""

    fails = True

    def resume(self, *settings: Any, **named: Any) -> Any:
        if self.fails:
            raise ConnectionError("the database is away")
        return super().resume(*settings, **named)


def test_a_failing_round_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """R27: a database that comes back is worked on again."""
    told: list[Any] = []
    once = Failing(MemoryStore(), scope="s")

    async def trial() -> None:
        worker = Worker(once, every=AT_ONCE, observer=told.append)
        pauses: list[float] = []

        async def no_pause(_: asyncio.Event, seconds: float) -> bool:
            pauses.append(seconds)
            if len(pauses) == 3:
                once.fails = False
            await asyncio.sleep(0)
            return False

        monkeypatch.setattr(module, "_pause", no_pause)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.health()[0].rounds > 0)
        worker.stop()
        await running
        assert all(pause > 0 for pause in pauses[:3])
        assert worker.health()[0].failures == 3

    asyncio.run(trial())
    assert {(event.name, event.operation, event.loud) for event in told} == {("worker.failed", "resume", True)}


def test_a_stop_waits_for_the_round_that_is_under_way_and_no_longer_than_it_may() -> None:
    """R24: what does not end by then is left to its lease."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Once):
        def resume(self, *settings: Any, **named: Any) -> Any:
            begun.set()
            go_on.wait(30)
            return super().resume(*settings, **named)

    async def trial(grace: timedelta, *, ends: bool) -> None:
        begun.clear()
        go_on.clear()
        worker = Worker(Slow(MemoryStore(), scope="s"), every=AT_ONCE, grace=grace)
        running = asyncio.create_task(worker.run())
        await until(begun.is_set)
        worker.stop()
        if ends:
            await asyncio.sleep(0)
            assert not running.done()
            go_on.set()
        await running
        assert worker.health()[0].rounds == ends

    asyncio.run(trial(timedelta(seconds=30), ends=True))
    asyncio.run(trial(AT_ONCE, ends=False))
    go_on.set()


def test_a_stop_begins_no_further_operation(shop: Shop) -> None:
    """R24: the operation that is under way comes to its end; those that wait for their turn are left as they are."""
    once = shop.another()
    runs: list[int] = []
    stop: list[Callable[[], None]] = []

    @once.operation(key=lambda number: f"{K}-{number}", effects="resumable", name="op")
    def op(number: int) -> int:
        runs.append(number)
        if not stop:
            raise TimeoutError
        stop[0]()
        return number

    for number in range(3):
        with pytest.raises(TimeoutError):
            op(number)
    shop.clock.advance(timedelta(seconds=2))

    async def trial() -> None:
        worker = Worker(once, every=AT_ONCE)
        stop.append(worker.stop)
        await worker.run()
        assert worker.health()[0].rounds == 1

    asyncio.run(trial())
    assert len(runs) == 3 + 1
    assert once.resume().done == 2


def test_an_asynchronous_round_begins_no_further_operation_either() -> None:
    """R24: however many are at once."""
    clock = ManualClock()
    once = AsyncOnce(AsyncMemoryStore(clock=clock), scope="s", observer=lambda event: None)
    stopping = threading.Event()
    runs: list[int] = []

    @once.operation(key=lambda number: f"{K}-{number}", effects="resumable", name="op")
    async def op(number: int) -> int:
        runs.append(number)
        if len(runs) <= 5:
            raise TimeoutError
        stopping.set()
        return number

    async def trial() -> None:
        for number in range(5):
            with pytest.raises(TimeoutError):
                await op(number)
        clock.advance(timedelta(seconds=2))
        assert (await once.resume(at_once=1, stopping=stopping)).done == 1
        assert len(runs) == 5 + 1
        assert (await once.resume()).done == 4

    asyncio.run(trial())


class Fatal(BaseException):
    """No Exception."""


@pytest.mark.parametrize("error", [Fatal, SystemExit, KeyboardInterrupt], ids=lambda error: error.__name__)
def test_a_part_that_is_ended_by_what_is_no_exception_ends_the_worker_with_an_error(error: type[BaseException]) -> None:
    """R27: it is told, the other parts end their rounds, and whoever runs the worker hears of it."""
    told: list[Any] = []
    ended: list[str] = []

    class Ending(AsyncOnce):
        async def resume(self, *settings: Any, **named: Any) -> Any:
            raise error("the end")

    class Slow(AsyncReconcilers):
        async def run_once(self, *settings: Any, **named: Any) -> Any:
            began.set()
            await asyncio.sleep(0)
            ended.append("its round")
            return await super().run_once()

    began = asyncio.Event()

    async def trial() -> None:
        store = AsyncMemoryStore()
        worker = Worker(Slow(store), Ending(store, scope="s"), every=AT_ONCE, observer=told.append)
        with pytest.raises(RuntimeError, match=f"'resume' was ended by {error.__name__}") as raised:
            await asyncio.wait_for(worker.run(), 60)
        assert isinstance(raised.value.__cause__, error)

    asyncio.run(trial())
    assert ended
    assert [(event.name, event.operation, event.loud, type(event.error)) for event in told] == [
        ("worker.failed", "resume", True, error)
    ]


def test_a_part_that_is_cancelled_from_within_goes_on() -> None:
    """R27: a time-out in a part may come as a CancelledError, which is nobody's wish that the worker ends."""
    rounds: list[int] = []

    class Cancelled(AsyncOnce):
        async def resume(self, *settings: Any, **named: Any) -> Any:
            rounds.append(len(rounds))
            raise asyncio.CancelledError

    async def trial() -> None:
        worker = Worker(Cancelled(AsyncMemoryStore(), scope="s"), every=AT_ONCE, observer=lambda event: None)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.health()[0].failures > 0)
        assert not running.done()
        worker.stop()
        await running

    asyncio.run(trial())


def test_hints_that_cannot_be_heard_any_more_are_told_of() -> None:
    """R28: the relay looks by itself then."""
    told: list[Any] = []

    class Deaf(Relay):
        def __init__(self) -> None: ...

        counted = None

        async def listen(self) -> None:
            raise OSError("no ears")

        async def run_once(self, *settings: Any, **named: Any) -> Any: ...

        def on_hint(self, call: Any) -> None: ...

        async def aclose(self) -> None: ...

    async def trial() -> None:
        worker = Worker(Deaf(), every=AT_ONCE, observer=told.append)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.health()[0].rounds > 1)
        worker.stop()
        await running

    asyncio.run(trial())
    assert [(event.name, event.operation, event.loud) for event in told] == [("worker.failed", "listen", True)]


def test_a_worker_is_cancelled_as_it_is_stopped() -> None:
    """R27: inside a web process its task is cancelled at the shutdown."""

    async def trial() -> None:
        running = asyncio.create_task(Worker(AsyncOnce(AsyncMemoryStore(), scope="s")).run())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(trial())


def test_misuse_is_refused_where_it_is_made() -> None:
    """R27: a worker without work, or with what it cannot do."""
    with pytest.raises(ConfigurationError, match="something to do"):
        Worker()
    with pytest.raises(ConfigurationError, match="no use for a MemoryStore"):
        Worker(MemoryStore())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="every"):
        Worker(Once(MemoryStore(), scope="s"), every=5)  # type: ignore[arg-type]
