"""Asynchronous functions and operations that are cancelled at the worst moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from twicesafe.core.policy import Policy
from twicesafe.errors import AmbiguousWriteError, StepGivenUpError, StoreUnavailableError
from twicesafe.once import AsyncOnce, current
from twicesafe.reconcile import AsyncReconcilers, NotDone, Unknown
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.testing import ManualClock

K = "order-77"
MINUTE = timedelta(minutes=1)


class Place:
    """A store of which one method can be made to wait or to fail, and a provider that remembers no keys."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.clock = ManualClock()
        self.store: Any = AsyncMemoryStore(MemoryStore(clock=self.clock))
        self.once = AsyncOnce(self.store, scope="s", policy=policy, observer=lambda event: None)
        self.sent: list[str] = []
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    def patch(self, name: str, before: Callable[[int], Any], after: Callable[[], Any] = lambda: None) -> None:
        """`before` gets the number of the call, and may give something to wait for."""
        method, calls = getattr(self.store, name), 0

        async def patched(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            waiting = before(calls)
            if waiting is not None:
                self.reached.set()
                await waiting
            answer = await method(*given)
            after()
            return answer

        setattr(self.store, name, patched)

    async def work(self) -> str:
        self.sent.append("work")
        return "done"

    def operation(self) -> Callable[[], Any]:
        async def charge(key: str) -> str:
            self.sent.append(key)
            return "ch_1"

        @self.once.operation(key=lambda: K, effects="resumable", name="op")
        async def op() -> Any:
            return await current().call("charge", charge)

        return op

    async def cancelled(self, work: Any) -> None:
        """Cancel it once the store is at what it was to be cancelled in."""
        task = asyncio.create_task(work)
        await self.reached.wait()
        task.cancel()
        await asyncio.sleep(0)
        self.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        for name in ("claim", "advance"):
            self.store.__dict__.pop(name, None)
        self.clock.advance(MINUTE)


def test_a_claim_that_may_stand_is_taken_back() -> None:
    """R13, R16: cancelled while nobody knows whether it was claimed, before anything ran; so its key is free."""

    async def trial() -> None:
        place = Place()

        def lost() -> None:
            place.reached.set()
            raise AmbiguousWriteError("lost")

        place.patch("claim", lambda number: None, lost)
        await place.cancelled(place.once(K, place.work))
        assert await place.once(K, place.work) == "done"
        assert place.sent == ["work"]

    asyncio.run(trial())


def test_what_a_call_came_to_is_written_down_whoever_cancels() -> None:
    """R25: the store fails just then, and is asked again; the next attempt has the result, and sends nothing."""

    async def trial() -> None:
        place = Place()

        def failing(number: int) -> None:
            if number == 2:
                place.reached.set()
                raise StoreUnavailableError("away")

        place.patch("advance", failing)
        op = place.operation()
        await place.cancelled(op())
        assert await op() == "ch_1"
        assert len(place.sent) == 1

    asyncio.run(trial())


def test_cancelled_before_it_is_sent_a_call_is_not_sent() -> None:
    """R25: it was written down that it is about to be, and then that it was not; so the next attempt sends it."""

    async def trial() -> None:
        place = Place()
        place.patch("advance", lambda number: place.gate.wait() if number == 1 else None)
        op = place.operation()
        await place.cancelled(op())
        assert place.sent == []
        assert await op() == "ch_1"
        assert len(place.sent) == 1

    asyncio.run(trial())


def test_who_is_cancelled_does_not_wait_for_somebody_else() -> None:
    """R11: the cancellation comes in the middle of a claim; waiting for the first attempt is not begun after it."""

    async def trial() -> None:
        place = Place(Policy(wait=timedelta(hours=1)))
        begun, end = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            begun.set()
            await end.wait()

        first = asyncio.create_task(place.once(K, slow))
        await begun.wait()
        place.patch("claim", lambda number: place.gate.wait())
        async with asyncio.timeout(20) as limit:
            await place.cancelled(place.once(K, slow))
        assert not limit.expired()
        end.set()
        await first

    asyncio.run(trial())


# --- time-outs of the operation's own --------------------------------------------------------------------------------


async def for_ever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("goes_on", ["to its end", "to another step"])
@pytest.mark.parametrize("kind", ["asyncio", "anyio"])
def test_a_time_out_that_is_caught_cancels_nobody(kind: str, goes_on: str) -> None:
    """A1, R25: an operation that gave a call up has no result, and its caller, whom nobody cancelled, is told so; the
    next attempt has the call, under the same key."""

    async def trial() -> None:
        place = Place()
        hanging = True

        async def charge(key: str) -> str:
            place.sent.append(key)
            if hanging:
                await for_ever()
            return "ch_1"

        async def step() -> Any:
            return await current().call("charge", charge, remembers=timedelta(hours=1))

        @place.once.operation(key=lambda: K, effects="resumable", name="op")
        async def op() -> Any:
            if not hanging:
                return await step()
            if kind == "anyio":
                with anyio.move_on_after(0):
                    return await step()
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0):
                        return await step()
            return await current().call("another", charge) if goes_on == "to another step" else "pending"

        with pytest.raises(StepGivenUpError):
            await op()
        task = asyncio.current_task()
        assert task is not None and not task.cancelling()
        hanging = False
        place.clock.advance(MINUTE)
        assert await op() == "ch_1"
        assert len(set(place.sent)) == 1

    asyncio.run(trial())


def test_who_is_cancelled_and_catches_that_is_cancelled_all_the_same() -> None:
    """A1: a cancellation that the operation swallows is not taken for a time-out of its own."""

    async def trial() -> None:
        place = Place()

        async def charge(key: str) -> str:
            place.sent.append(key)
            place.reached.set()
            await for_ever()
            return key

        @place.once.operation(key=lambda: K, effects="resumable", name="op")
        async def op() -> str:
            with suppress(asyncio.CancelledError):
                await current().call("charge", charge)
            return "pending"

        await place.cancelled(op())
        assert len(place.sent) == 1

    asyncio.run(trial())


def test_a_cancellation_of_nobody_does_not_end_a_round(tmp_path: Path) -> None:
    """R26, R27: operations and reconcilers that wait for something that was cancelled fail, and those behind them have
    their turn in the same round."""

    async def trial() -> None:
        clock = ManualClock()
        store = AsyncSqliteStore(tmp_path / "a.db", clock=clock)
        await store.apply_schema()
        once = AsyncOnce(store, scope="s", observer=lambda event: None)
        broken = True

        @once.operation(key=lambda number: f"key-{number}", effects="resumable", name="op")
        async def op(number: int) -> int:
            if broken:
                await cancelled_already()
            return number

        for number in range(3):
            with pytest.raises(asyncio.CancelledError):
                await op(number)
        clock.advance(MINUTE)
        assert await once.resume(at_once=1) == (0, 3, 0, False)
        broken = False
        clock.advance(timedelta(hours=1))
        assert await once.resume(at_once=1) == (3, 0, 0, False)

        opaque = AsyncOnce(store, scope="s", policy=Policy(unknown_on_error=True), observer=lambda event: None)
        for number in range(3):
            with pytest.raises(asyncio.CancelledError):
                await opaque(f"opaque-{number}", cancelled_already)
        reconcilers = AsyncReconcilers(store, observer=lambda event: None)

        @reconcilers.of(f"{__name__}.cancelled_already")
        async def find(unknown: Unknown) -> NotDone:
            await cancelled_already()
            return NotDone()

        assert await reconcilers.run_once() == (0, 0, 0, 3, False)
        await store.aclose()

    asyncio.run(trial())


async def cancelled_already() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future
