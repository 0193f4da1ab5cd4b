"""What people have written may hang: it keeps its own place, and workers go on with everything else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.functions.shop import K, Shop
from tests.functions.test_worker import AT_ONCE, until
from twicesafe import rounds as module
from twicesafe.errors import InProgressError
from twicesafe.once import AsyncOnce, Once
from twicesafe.outbox import Message
from twicesafe.outbox.publishing import as_publisher
from twicesafe.reconcile import AsyncReconcilers, Done, Reconcilers, Unknown
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.testing import ManualClock
from twicesafe.worker import Worker


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round takes long soon; one in which nothing hangs has time enough on a busy machine."""
    monkeypatch.setattr(module, "LONG", 0.2)
    monkeypatch.setattr(module, "HANGS", 0.2)


@contextmanager
def hanging() -> Iterator[threading.Event]:
    """Whatever waits for this goes on in the end."""
    go_on = threading.Event()
    try:
        yield go_on
    finally:
        go_on.set()


def test_an_operation_that_hangs_keeps_its_key_and_holds_up_no_other(shop: Shop) -> None:
    """R27, I1: the others are gone on with beside it; it is told, and comes to its end where it can."""
    told: list[Any] = []
    once = shop.another()
    runs: list[str] = []
    tried: set[str] = set()

    with hanging() as go_on:

        @once.operation(key=lambda name: f"{K}-{name}", effects="resumable", name="op")
        def op(name: str) -> str:
            if name not in tried:
                tried.add(name)
                raise TimeoutError
            runs.append(name)
            if name == "hangs":
                go_on.wait(100)
            return name

        def broken_off(name: str) -> None:
            with pytest.raises(TimeoutError):
                op(name)
            shop.clock.advance(timedelta(seconds=2))

        async def trial() -> None:
            worker = Worker(once, every=AT_ONCE, observer=told.append)
            broken_off("hangs")
            running = asyncio.create_task(worker.run())
            await until(lambda: worker.health()[0].hanging == 1)
            broken_off("another")
            await until(lambda: "another" in runs and worker.health()[0].rounds > 0)
            assert runs == ["hangs", "another"]
            with pytest.raises(InProgressError):
                op("hangs")
            assert not worker.health()[0].late
            go_on.set()
            await until(lambda: worker.health()[0].hanging == 0)
            worker.stop()
            await running

        asyncio.run(trial())
    assert (op("hangs"), op("another")) == ("hangs", "another")
    assert runs == ["hangs", "another"]
    assert ("worker.hanging", "resume", True) in [(event.name, event.operation, event.loud) for event in told]


class Stuck(AsyncOnce):
    """Its rounds hang until they are let go."""

    def __init__(self) -> None:
        super().__init__(AsyncMemoryStore(), scope="s")
        self.begun = 0
        self.turns = asyncio.Semaphore(0)
        self.ended_by: type[BaseException] | None = None

    async def resume(self, *_settings: Any, **_named: Any) -> Any:
        self.begun += 1
        await self.turns.acquire()
        if self.ended_by is not None:
            raise self.ended_by


def quiet(_event: Any) -> None:
    """Nobody is told."""


def test_so_many_may_hang_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """R27: each is somebody's thread and connection, so the next round waits for one of them to end."""
    monkeypatch.setattr(module, "LONG", 0.01)
    monkeypatch.setattr(module, "HANGS", 0.01)

    async def trial() -> None:
        once = Stuck()
        worker = Worker(once, every=AT_ONCE, observer=quiet, grace=AT_ONCE)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.health()[0].hanging == module.MOST)
        for _ in range(20):
            await asyncio.sleep(0)
        assert once.begun == module.MOST
        once.turns.release()
        await until(lambda: once.begun == module.MOST + 1)
        worker.stop()
        await running
        assert worker.health()[0].hanging == 0

    asyncio.run(trial())


@pytest.mark.parametrize("error", [SystemExit, OSError])
def test_what_ends_a_round_that_hung_is_told_of(error: type[BaseException]) -> None:
    """R27: a failure is counted; what is no Exception ends the worker with an error, as in any round."""
    told: list[Any] = []

    async def trial() -> None:
        once = Stuck()
        worker = Worker(once, every=AT_ONCE, observer=told.append, grace=AT_ONCE)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.health()[0].hanging == 1)
        once.ended_by = error
        once.turns.release()
        if error is SystemExit:
            with pytest.raises(RuntimeError, match="'resume' was ended by SystemExit"):
                await asyncio.wait_for(running, 60)
        else:
            await until(lambda: worker.health()[0].failures == 1)
            worker.stop()
            await running

    asyncio.run(trial())
    failed = [event for event in told if event.name == "worker.failed"]
    assert [(type(event.error), event.loud) for event in failed] == [(error, True)]


def unknown_outcomes(store: MemoryStore) -> None:
    once = Once(store, scope="s", observer=quiet)

    def lost() -> None:
        raise TimeoutError

    for name in ("hangs", "another"):
        with pytest.raises(TimeoutError):
            once.operation(key=lambda name=name: f"{K}-{name}", unknown_on_error=True, name=name)(lost)()


def test_a_reconciler_that_hangs_is_asked_once_and_holds_up_no_other() -> None:
    """R26: what nobody can find out just now is not asked about again meanwhile, and the others are settled."""
    store = MemoryStore()
    unknown_outcomes(store)
    asked: list[str] = []
    reconcilers = Reconcilers(store, observer=quiet)

    with hanging() as go_on:

        @reconcilers.of("hangs")
        def hangs(_unknown: Unknown) -> Done:
            asked.append("hangs")
            go_on.wait(100)
            return Done(1)

        @reconcilers.of("another")
        def another(_unknown: Unknown) -> Done:
            asked.append("another")
            return Done(2)

        async def trial() -> None:
            worker = Worker(reconcilers, every=AT_ONCE, observer=quiet)
            running = asyncio.create_task(worker.run())
            await until(lambda: "another" in asked and "hangs" in asked)
            seen = worker.health()[0].rounds
            await until(lambda: worker.health()[0].rounds > seen + 3)
            assert sorted(asked) == ["another", "hangs"]
            go_on.set()
            await until(lambda: not store.outstanding().records)
            worker.stop()
            await running

        asyncio.run(trial())
    assert sorted(asked) == ["another", "hangs"]


def test_a_round_of_reconcilers_that_is_to_stop_asks_nothing_further() -> None:
    """R26: what it leaves is found by the next one."""
    store = MemoryStore()
    unknown_outcomes(store)
    stopping = threading.Event()
    asked: list[str] = []
    reconcilers = Reconcilers(store, observer=quiet)

    def find(unknown: Unknown) -> Done:
        asked.append(unknown.operation)
        stopping.set()
        return Done(1)

    for name in ("hangs", "another"):
        reconcilers.of(name)(find)
    assert reconcilers.run_once(stopping=stopping).done == 1
    assert len(asked) == 1
    assert reconcilers.run_once().done == 1
    assert sorted(asked) == ["another", "hangs"]

    async def trial() -> None:
        stopped = threading.Event()
        stopped.set()
        assert (await AsyncReconcilers(AsyncMemoryStore()).run_once(stopping=stopped)).done == 0

    asyncio.run(trial())


def test_a_publisher_that_blocks_holds_up_no_message_but_its_own() -> None:
    """R28, J2: however many hang, and whatever the process has of threads for other things."""
    sent: list[str] = []

    with hanging() as go_on:

        def publish(message: Message) -> None:
            if message.id != "last":
                go_on.wait(100)
            sent.append(message.id)

        async def trial() -> None:
            publisher = as_publisher(publish)
            message = Message("0", "/s", "t", "a", "1", b"")
            stuck = [asyncio.create_task(publisher.publish(message._replace(id=str(n)))) for n in range(64)]
            await asyncio.sleep(0)
            await asyncio.wait_for(publisher.publish(message._replace(id="last")), 60)
            assert sent == ["last"]
            go_on.set()
            await asyncio.gather(*stuck)
            assert len(sent) == 65

        asyncio.run(trial())


def test_a_database_that_is_away_for_days_ends_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """R27: the pause after a failure grows up to a minute, however many there were."""
    pauses: list[float] = []

    class Away(AsyncOnce):
        async def resume(self, *_settings: Any, **_named: Any) -> Any:
            raise ConnectionError

    async def trial() -> None:
        worker = Worker(Away(AsyncMemoryStore(clock=ManualClock()), scope="s"), observer=quiet)

        async def no_pause(_ends: asyncio.Event, seconds: float) -> bool:
            pauses.append(seconds)
            if len(pauses) == 1100:
                worker.stop()
            await asyncio.sleep(0)
            return False

        monkeypatch.setattr("twicesafe.worker._pause", no_pause)
        await worker.run()

    asyncio.run(trial())
    assert len(pauses) == 1100
    assert max(pauses) <= 60 * 1.2
