"""Fixtures for tests of applications, clients, workers and consumers. pytest finds them where twicesafe is installed.

None of them needs a plugin for asynchronous tests. What a fixture needs is imported when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

import pytest

# This is loaded by every run of a pytest beside which twicesafe is installed.
if TYPE_CHECKING:
    from twicesafe.demo.provider.fake import FakeProvider
    from twicesafe.testing.broker import FakeBroker
    from twicesafe.testing.client import AsyncIdempotentClient, IdempotentClient, ResponseDropper, Target
    from twicesafe.testing.clock import ManualClock
    from twicesafe.testing.counting import Count
    from twicesafe.testing.cutting import Life
    from twicesafe.testing.effects import OneEffect
    from twicesafe.testing.intents import Journal


__all__ = ["AssertOneEffect", "CutAt", "MakeAsyncClient", "MakeClient"]


class MakeClient(Protocol):
    """What `idempotent_client` is."""

    def __call__(self, target: Target, **settings: Any) -> IdempotentClient: ...


class MakeAsyncClient(Protocol):
    """What `async_idempotent_client` is."""

    def __call__(self, target: Target, **settings: Any) -> AsyncIdempotentClient: ...


class AssertOneEffect(Protocol):
    """What `assert_one_effect` is."""

    def __call__(self, count: Count, connection: Any = None, *, intents: int | None = None) -> OneEffect: ...


class CutAt(Protocol):
    """What `cut_at` is."""

    @overload
    def __call__(self, trial: Callable[[Life], Awaitable[None]]) -> Awaitable[int]: ...

    @overload
    def __call__(self, trial: Callable[[Life], None]) -> int: ...


@pytest.fixture
def tried_intents() -> Journal:
    """All intents that the clients of this test have tried, in their order."""
    return []


@pytest.fixture
def idempotent_client(tried_intents: Journal) -> Iterator[MakeClient]:
    """Makes a client of an ASGI or WSGI application, or of a base URL, for a test that blocks.

    The application is started with it, and stopped when the test is over.
    """
    from twicesafe.testing.client import IdempotentClient

    with ExitStack() as opened:
        yield lambda target, **settings: opened.enter_context(
            IdempotentClient(target, journal=tried_intents, **settings)
        )


@pytest.fixture
def async_idempotent_client(tried_intents: Journal) -> MakeAsyncClient:
    """The same for asyncio: `async with async_idempotent_client(app) as client`."""
    from twicesafe.testing.client import AsyncIdempotentClient

    return lambda target, **settings: AsyncIdempotentClient(target, journal=tried_intents, **settings)


@pytest.fixture
def assert_one_effect(tried_intents: Journal) -> AssertOneEffect:
    """A context in which each intent has exactly one effect: `with assert_one_effect(count)`, or `async with`.

    `count` gives how many effects there are: a function, or a SELECT and the connection to ask.
    """

    from twicesafe.testing.effects import OneEffect

    def made(count: Count, connection: Any = None, *, intents: int | None = None) -> OneEffect:
        return OneEffect(count, connection, journal=tried_intents, intents=intents)

    return made


@pytest.fixture
def cut_at() -> CutAt:
    """Runs a trial with a process that dies before its first step, behind it, before the second ... until it ends.

    `cut_at(trial)`, or `await cut_at(trial)` for a coroutine function: see twicesafe.testing.cut_everywhere.
    """
    from twicesafe.testing.cutting import acut_everywhere, cut_everywhere

    def cut(trial: Callable[[Life], Any]) -> Any:
        return (acut_everywhere if iscoroutinefunction(trial) else cut_everywhere)(trial)

    return cast("CutAt", cut)


@pytest.fixture
def drop_response() -> Callable[..., ResponseDropper]:
    """Makes a transport for a client of httpx2's: what it asks for is done, and the first answer is lost.

    `drop_response(target, times=1)`, where the target is an application, a base URL or another transport.
    """
    from twicesafe.testing.client import ResponseDropper

    return ResponseDropper


@pytest.fixture
def fake_provider(tmp_path: Path, manual_clock: ManualClock) -> Iterator[FakeProvider]:
    """A payment provider at `fake_provider.url`, with books and faults; it knows keys for 24 h of `manual_clock`."""
    from twicesafe.demo.provider.fake import FakeProvider

    with FakeProvider(tmp_path, clock=manual_clock) as provider:
        yield provider


@pytest.fixture
def fake_broker() -> FakeBroker:
    """A publisher for a relay, and what redelivers to a consumer, with the faults that the test arms."""
    from twicesafe.testing.broker import FakeBroker

    return FakeBroker()


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that stands still until the test moves it: for stores in memory and in SQLite, say."""
    from twicesafe.testing.clock import ManualClock

    return ManualClock()
