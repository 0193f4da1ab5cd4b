"""Plain functions under keys, blocking and asynchronous, called the same way by the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from inspect import signature
from typing import Any, get_type_hints

from twicesafe.core.policy import Policy
from twicesafe.observe import Event
from twicesafe.once import AsyncOnce, Once
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.testing import ManualClock


class Way:
    """One of the two, on a memory store whose time the test tells."""

    asynchronous = False

    def __init__(self, policy: Policy | None = None) -> None:
        self.clock = ManualClock()
        self.events: list[Event] = []
        self.records = MemoryStore(clock=self.clock)
        self.store: Any = self.records
        self.policy = policy
        self.once: Any = self.make()

    def make(self, policy: Policy | None = None) -> Any:
        """Another one on the same store."""
        return Once(self.store, scope="jobs", policy=policy or self.policy, observer=self.events.append)

    def call(self, key: Any, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call it under this key."""
        return self.end(self.once(key, self.own(function), *arguments, **named))

    def own(self, function: Callable[..., Any]) -> Any:
        """The function as this way wants it."""
        return function

    def end(self, called: Any) -> Any:
        """What a call comes to."""
        return called


class AsyncWay(Way):
    """Every call in a loop of its own, as processes come and go."""

    asynchronous = True

    def make(self, policy: Policy | None = None) -> Any:
        """Another one on the same store."""
        store = self.store if hasattr(self.store, "aclose") else AsyncMemoryStore(self.store)
        return AsyncOnce(store, scope="jobs", policy=policy or self.policy, observer=self.events.append)

    def own(self, function: Callable[..., Any]) -> Any:
        """The function as a coroutine function, of the same name, parameters and annotations."""

        async def made(*arguments: Any, **named: Any) -> Any:
            return function(*arguments, **named)

        made.__name__ = made.__qualname__ = getattr(function, "__qualname__", "function")
        made.__module__ = function.__module__
        made.__signature__ = signature(function)  # type: ignore[attr-defined]
        made.__annotations__ = get_type_hints(function)
        return made

    def end(self, called: Any) -> Any:
        """What a call comes to."""
        return asyncio.run(called)


WAYS = [Way, AsyncWay]


@dataclass(frozen=True)
class Receipt:
    id: str
    amount: Decimal


class Ledger:
    """Counts charges."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def charge(self, customer: str, cents: int = 100) -> Receipt:
        self.rows.append((customer, cents))
        return Receipt(f"ch_{len(self.rows)}", Decimal(cents) / 100)


async def done(value: Any) -> Any:
    """A coroutine of what is known already."""
    return value
