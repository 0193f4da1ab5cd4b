"""Coroutine functions under keys: cancelled at every place, their outcome is recorded all the same."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from twicesafe.core.policy import Policy
from twicesafe.errors import InProgressError, OutcomeUnknownError
from twicesafe.once import AsyncOnce, current
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.testing import ManualClock

K = "import-2026-10"


class Slow(AsyncMemoryStore):
    """A store that answers when it is let."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.let = asyncio.Event()
        self.let.set()
        self.asked = asyncio.Event()

    async def claim(self, claim: Any) -> Any:
        self.asked.set()
        await self.let.wait()
        return await super().claim(claim)

    async def complete(self, *what: Any, **named: Any) -> None:
        self.asked.set()
        await self.let.wait()
        await super().complete(*what, **named)


class Rig:
    """A store, and a function that waits where it is told."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.clock = ManualClock()
        self.store = Slow(self.clock)
        self.once = AsyncOnce(self.store, scope="jobs", policy=policy, observer=lambda event: None)
        self.runs = 0
        self.running, self.go_on = asyncio.Event(), asyncio.Event()

    async def work(self) -> int:
        self.runs += 1
        self.running.set()
        await self.go_on.wait()
        return self.runs


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel it, and see that it ends so."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_what_is_cancelled_while_it_runs_is_an_unknown_outcome() -> None:
    """A1, B7, I6: nobody knows how far it came, so it is held, and never run again."""

    async def trial() -> None:
        rig = Rig()
        task = asyncio.create_task(rig.once(K, rig.work))
        await rig.running.wait()
        await cancelled(task)
        with pytest.raises(OutcomeUnknownError):
            await rig.once(K, rig.work)
        assert rig.runs == 1

    asyncio.run(trial())


def test_keyed_work_that_is_cancelled_runs_again() -> None:
    """A1, R13: what carries derived keys is run again, at once."""

    async def trial() -> None:
        rig = Rig(Policy(effects="keyed"))  # type: ignore[arg-type]
        task = asyncio.create_task(rig.once(K, rig.work))
        await rig.running.wait()
        await cancelled(task)
        rig.clock.advance(timedelta(microseconds=1))
        rig.go_on.set()
        assert await rig.once(K, rig.work) == 2

    asyncio.run(trial())


def test_what_is_cancelled_while_it_is_recorded_is_recorded() -> None:
    """A1, I11: the work was done; its result is kept before the cancellation goes on, however often it comes."""

    async def trial() -> None:
        rig = Rig()
        rig.go_on.set()

        async def work() -> int:
            rig.store.let.clear()
            rig.store.asked.clear()
            return await rig.work()

        task = asyncio.create_task(rig.once(K, work))
        await rig.running.wait()
        await rig.store.asked.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        rig.store.let.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await rig.once(K, work) == 1
        assert rig.runs == 1

    asyncio.run(trial())


def test_what_is_cancelled_while_it_claims_leaves_its_key_free() -> None:
    """A1, B5: nothing ran, so nothing is left, not even a claim."""

    async def trial() -> None:
        rig = Rig()
        rig.go_on.set()
        rig.store.let.clear()
        task = asyncio.create_task(rig.once(K, rig.work))
        await rig.store.asked.wait()
        task.cancel()
        await asyncio.sleep(0)
        rig.store.let.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert rig.runs == 0
        assert await rig.once(K, rig.work) == 1

    asyncio.run(trial())


def test_waiting_for_somebody_else_is_given_up_at_once() -> None:
    """R11: a duplicate that waits holds nothing, so its cancellation need not wait."""

    async def trial() -> None:
        rig = Rig(Policy(wait=timedelta(days=1)))
        first = asyncio.create_task(rig.once(K, rig.work))
        await rig.running.wait()
        rig.store.asked.clear()
        second = asyncio.create_task(rig.once(K, rig.work))
        await rig.store.asked.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        await cancelled(second)
        rig.go_on.set()
        assert await first == 1
        assert rig.runs == 1

    asyncio.run(trial())


def test_many_at_once_run_once() -> None:
    """I1, C1: of fifty calls at one time one runs, and every other is told so or given its result."""

    async def trial() -> None:
        rig = Rig()
        calls = [asyncio.create_task(rig.once(K, rig.work)) for _ in range(50)]
        await rig.running.wait()
        await asyncio.sleep(0)
        rig.go_on.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert rig.runs == 1
        assert [result for result in results if result == 1] != []
        assert all(result == 1 or isinstance(result, InProgressError) for result in results)

    asyncio.run(trial())


def test_each_task_sees_its_own_call() -> None:
    """R25: derived keys of calls that run at the same time are their own."""

    async def trial() -> None:
        once = AsyncOnce(AsyncMemoryStore(), scope="jobs")
        both = asyncio.Barrier(2)
        seen: dict[str, str] = {}

        async def work(name: str) -> None:
            await both.wait()
            seen[name] = current().derived_key("charge")

        await asyncio.gather(once("k-1", work, "a"), once("k-2", work, "b"))
        assert len(set(seen.values())) == 2

    asyncio.run(trial())
