"""Nothing is stuck: what is held goes on or is settled, and a worker survives what it works for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.functions.shop import K, Shop
from tests.functions.ways import Receipt
from twicesafe.core.policy import Policy
from twicesafe.core.turns import ATTEMPTS, pause_before
from twicesafe.errors import CallUnknownError, OutcomeUnknownError
from twicesafe.once import Once, current
from twicesafe.reconcile import AsyncReconcilers, Done, NotDone, Reconcilers
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.worker import Worker

HOUR = timedelta(hours=1)


def exhausted(shop: Shop, once: Once) -> Any:
    """An operation that was tried too often, and would work by now."""
    works: list[int] = []

    @once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> str:
        if not works:
            raise RuntimeError("always")
        return "done"

    with pytest.raises(RuntimeError):
        op()
    for epoch in range(1, ATTEMPTS + 1):
        shop.clock.advance(timedelta(microseconds=pause_before(epoch) + 1))
        held = once.resume().held
    assert held == 1
    works.append(1)
    return op


def test_what_was_tried_too_often_goes_on_once_somebody_says_so(shop: Shop) -> None:
    """R26, R27: let go on by a human, the worker tries it as anew, and does not hold it again unseen."""
    once = shop.another()
    op = exhausted(shop, once)
    (record,) = shop.store.outstanding().records
    assert shop.store.reopen(record.ownership, record.recovery_point, None, record.recovery_data)
    shop.clock.advance(timedelta(microseconds=pause_before(1) + 1))
    assert once.resume()[:3] == (1, 0, 0)
    assert op() == "done"


@dataclass
class Odd:
    """Holds what cannot be kept."""

    what: Any = None


def test_a_result_that_was_lost_is_given_by_who_knows_it(shop: Shop) -> None:
    """R26, I6: carried out, and its result not kept: a reconciler gives it; that it was not done is no answer."""
    charges: list[str] = []

    def charge(key: str) -> Any:
        charges.append(key)
        return Odd() if len(charges) == 1 else "ch_2"

    fails = [True]

    @shop.once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> Any:
        charged = current().call("charge", charge)
        if fails:
            fails.clear()
            raise RuntimeError("stop here")
        return charged

    for error in (RuntimeError, CallUnknownError):
        with pytest.raises(error):
            op()
        shop.clock.advance(timedelta(seconds=1))
    answers: list[Any] = [NotDone(), Done("ch_1")]
    calls: list[str | None] = []
    reconcilers = Reconcilers(shop.store, observer=lambda event: None)

    @reconcilers.of("op")
    def find(unknown: Any) -> Any:
        calls.append(unknown.call)
        return answers.pop(0)

    assert reconcilers.run_once().failed == 1
    shop.clock.advance(HOUR)
    assert reconcilers.run_once().done == 1
    assert calls == ["charge"] * 2
    assert op() == "ch_1"
    assert len(charges) == 1


@pytest.mark.parametrize("steps", [False, True], ids=["function", "operation"])
def test_a_reconciler_gives_results_of_any_class(shop: Shop, steps: bool) -> None:
    """R26, A6: what the function says that it gives, its reconciler can give."""
    given = Receipt("ch_1", Decimal("1.10"))

    def lose(key: str) -> Receipt:
        raise TimeoutError

    def work() -> Any:
        return current().call("charge", lose) if steps else lose("")

    work.__annotations__["return"] = Receipt
    how: dict[str, Any] = {"effects": "resumable"} if steps else {"unknown_on_error": True}
    op = shop.once.operation(key=lambda: K, name="op", **how)(work)
    with pytest.raises(TimeoutError):
        op()
    shop.clock.advance(timedelta(seconds=1))
    with pytest.raises((CallUnknownError, OutcomeUnknownError)):
        op()
    reconcilers = Reconcilers(shop.store, observer=lambda event: None)
    reconcilers.of("op")(lambda unknown: Done(given))
    assert reconcilers.run_once().done == 1
    assert op() == given


# --- workers ---------------------------------------------------------------------------------------------------------


def test_a_worker_is_stopped_from_another_thread_at_once() -> None:
    """R27: however long it would have paused."""
    worker = Worker(Once(MemoryStore(), scope="s"), every=HOUR)

    async def trial() -> None:
        running = asyncio.create_task(worker.run())
        while not worker.health()[0].rounds:  # noqa: ASYNC110 - a thread makes it so
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        # By then the loop waits for nothing but the next round, an hour later.
        threading.Timer(0.1, worker.stop).start()
        async with asyncio.timeout(20):
            await running

    asyncio.run(trial())


@pytest.fixture
def rounds() -> Iterator[list[str]]:
    """What a reconciler that ends in an unusual way was asked about."""
    asked: list[str] = []
    yield asked
    assert len(asked) > 1


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError])
def test_what_ends_a_thread_does_not_end_the_worker(rounds: list[str], error: type[BaseException]) -> None:
    """R27: a part goes on whatever its functions raise."""
    store = MemoryStore()
    unknown(Once(store, scope="s", policy=Policy(unknown_on_error=True), observer=lambda event: None))
    reconcilers = Reconcilers(store, observer=lambda event: None)

    @reconcilers.of("charge")
    def find(found: Any) -> Any:
        rounds.append(found.operation)
        raise error

    asyncio.run(asked_twice(Worker(reconcilers, every=timedelta(0), observer=lambda event: None), rounds))


def test_a_cancellation_that_is_not_the_workers_does_not_end_it(rounds: list[str]) -> None:
    """R27: somebody else's task was cancelled, which a reconciler waited for."""
    store = MemoryStore()
    unknown(Once(store, scope="s", policy=Policy(unknown_on_error=True), observer=lambda event: None))
    reconcilers = AsyncReconcilers(AsyncMemoryStore(store), observer=lambda event: None)

    @reconcilers.of("charge")
    async def find(found: Any) -> Any:
        rounds.append(found.operation)
        task = asyncio.create_task(asyncio.sleep(100))
        task.cancel()
        await task

    asyncio.run(asked_twice(Worker(reconcilers, every=timedelta(0), observer=lambda event: None), rounds))


def unknown(once: Once) -> None:
    def charge() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        once.operation(key=lambda: K, name="charge")(charge)()


async def asked_twice(worker: Worker, asked: list[str]) -> None:
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        while len(asked) < 2:  # noqa: ASYNC110 - threads make it so
            await asyncio.sleep(0.01)
    worker.stop()
    await running
