"""The Redis stores on names of their own in the tests' servers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from tests.stores.postgresql_kinds import interpose
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.redis import AsyncRedisStore, RedisStore
from twicesafe.testing import ManualClock, StoreUnderTest

KINDS: dict[str, Any] = {"blocking": RedisStore, "async": AsyncRedisStore}

_numbers = count(1)


def new_prefix() -> str:
    """Of which no other test has names."""
    return f"test{next(_numbers)}:"


def subject(url: str, kind: str) -> Callable[[ManualClock], StoreUnderTest]:
    """What the contract's checks want to know."""

    def make(clock: ManualClock) -> StoreUnderTest:
        prefix = new_prefix()
        store = KINDS[kind](url, prefix=prefix, clock=clock)
        return StoreUnderTest(
            store=store,
            elsewhere=lambda: KINDS["blocking"](url, prefix=prefix, clock=clock),
            before_statement=lambda call: interpose(store, call),
        )

    return make


def durable_subject(url: str, kind: str) -> Callable[[ManualClock], StoreUnderTest]:
    """The same with the records elsewhere."""

    def make(clock: ManualClock) -> StoreUnderTest:
        prefix = new_prefix()
        records = MemoryStore(clock=clock)
        behind: dict[str, Any] = {"blocking": records, "async": AsyncMemoryStore(records)}

        def open_store(which: str) -> Any:
            return KINDS[which](url, prefix=prefix, clock=clock, records=behind[which])

        return StoreUnderTest(store=open_store(kind), elsewhere=lambda: open_store("blocking"))

    return make
