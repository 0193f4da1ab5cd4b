"""The async bindings under asyncio and under trio: waiting, deadlines and cancellation are the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import httpx
import httpx2
import pytest

from tests.client.bindings import NO_TLS, QUICK
from tests.client.scripted import Act, Exchange, answer, drip, reset_after_commit, serving, silence
from twicesafe.client import AsyncAmbient, Budgets, Intent, Stop, Succeeded, Unknown, report_of
from twicesafe.client.httpx import AsyncRetryTransport, asend

under = pytest.mark.parametrize("loop", ["asyncio", "trio"])
by = pytest.mark.parametrize("library", [httpx2, httpx], ids=lambda library: library.__name__)
through = pytest.mark.parametrize("typed", [True, False], ids=["send", "transport"])

Story = Callable[[], Awaitable[Any]]


def run(loop: str, story: Story) -> Any:
    """Under asyncio.run() or trio.run()."""
    return anyio.run(story, backend=loop)


REAL = AsyncAmbient()


class Asleep:
    """The real clock and the real sleep, of a client that draws short waits. `begun` is set when it begins to wait."""

    def __init__(self) -> None:
        self.begun = threading.Event()

    async def sleep(self, seconds: float) -> None:
        self.begun.set()
        await REAL.sleep(seconds)

    @property
    def ambient(self) -> AsyncAmbient:
        return AsyncAmbient(fraction=lambda: 0.001, sleep=self.sleep)


async def perform(
    library: Any, typed: bool, intent: Intent, policy: Any, seen: list[BaseException], asleep: Asleep
) -> Any:
    """Send an intent: its outcome, or the response of a client with a retry transport. What is raised is `seen`."""
    transport = library.AsyncHTTPTransport(verify=NO_TLS)
    how: dict[str, Any] = {"policy": policy, "budgets": Budgets(), "ambient": asleep.ambient}
    wrapped = transport if typed else AsyncRetryTransport(transport, **how)
    async with library.AsyncClient(transport=wrapped, timeout=60.0) as client:
        try:
            if typed:
                return await asend(client, intent, **how)
            headers = {"Idempotency-Key": intent.key}
            return await client.request(intent.method, intent.url, content=intent.body, headers=headers)
        except BaseException as error:
            seen.append(error)
            raise


@under
@by
@through
def test_a_lost_answer_is_asked_for_again(loop: str, library: Any, typed: bool) -> None:
    """R38, I8: after a real wait, with the same key and bytes."""
    with serving(reset_after_commit, answer(503), answer(201)) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = run(loop, partial(perform, library, typed, intent, QUICK, [], Asleep()))
        assert [(hit.key, hit.body) for hit in server.hits] == [(intent.key, b"1")] * 3
    assert isinstance(result, Succeeded) if typed else result.status_code == 201


@under
@by
@pytest.mark.parametrize("act", [silence, drip])
def test_the_deadline_interrupts_whatever_is_under_way(loop: str, library: Any, act: Act) -> None:
    """R39: silent or talking for ever, the attempt ends with the time for it, as a time-out of the library's."""
    policy = QUICK.but(deadline=timedelta(seconds=0.4), attempt_timeout=None)
    with serving(act) as server:
        intent = Intent.new("POST", server.origin, json=1)
        began = time.monotonic()
        outcome = run(loop, partial(perform, library, True, intent, policy, [], Asleep()))
        assert len(server.hits) == 1 and time.monotonic() - began < 30
    assert isinstance(outcome, Unknown)
    assert (outcome.stop, outcome.key) == (Stop.DEADLINE, intent.key)
    assert isinstance(outcome.error, library.TimeoutException)


@under
@by
@through
@pytest.mark.parametrize("waiting", [False, True], ids=["for the answer", "to ask again"])
def test_cancellation_leaves_the_intent_resumable(loop: str, library: Any, typed: bool, waiting: bool) -> None:
    """I8: who is cancelled while an answer is on its way, or between attempts, ends at once and asks again later."""
    seen: list[BaseException] = []
    asleep, arrived = Asleep(), threading.Event()

    async def cancelled(intent: Intent) -> Any:
        story = partial(perform, library, typed, intent, QUICK, seen, asleep)
        async with anyio.create_task_group() as group:
            group.start_soon(story)
            await anyio.to_thread.run_sync((asleep.begun if waiting else arrived).wait, 10)
            group.cancel_scope.cancel()
        assert isinstance(seen[0], anyio.get_cancelled_exc_class())
        return await story()

    def held(exchange: Exchange) -> None:
        if waiting:
            answer(503, "Retry-After: 9")(exchange)
        else:
            exchange.read()
            arrived.set()
            exchange.wait_until_left()

    with serving(held, answer(201)) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = run(loop, partial(cancelled, intent))
        assert [(hit.key, hit.body) for hit in server.hits] == [(intent.key, b"1")] * 2
    assert isinstance(result, Succeeded) if typed else result.status_code == 201
    (error,) = seen
    assert report_of(error).key == intent.key


@under
def test_the_time_for_one_part_is_not_the_time_for_all(loop: str) -> None:
    """R39: an attempt that timed out leaves nothing cancelled: the next one runs, and so does what comes after."""

    async def story() -> Any:
        outcome = await perform(httpx2, True, intent, QUICK.but(attempt_timeout=timedelta(seconds=0.3)), [], Asleep())
        await REAL.sleep(0.0)
        return outcome

    with serving(silence, answer(201)) as server:
        intent = Intent.new("POST", server.origin, json=1)
        outcome = run(loop, story)
        assert len(server.hits) == 2
    assert isinstance(outcome, Succeeded) and outcome.attempts[0].failure == "timeout"
