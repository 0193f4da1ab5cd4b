"""What is put through the checks: a fresh store, and the few handles that only its author can give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from twicesafe.stores.contract import AsyncStore, Store
from twicesafe.testing.clock import ManualClock


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUnderTest:
    """One store on a place of its own, and ways to look behind it. Callables may return an awaitable.

    `store` reads its time from the ManualClock it was made with.
    `write_effect(connection, name)` writes a row of the application's own through a transaction's connection, and
    `count_effects(name)` counts the committed ones from outside; a store with transactions needs both.
    `elsewhere()` gives another store on the same records, as another process has it: with another session time zone,
    or whatever else may differ. `before_statement(call)` has `call(n)` called before the n-th statement that the store
    sends from then on, counted from 0, and awaited where the store is asynchronous; a store that claims in one
    indivisible step has no use for it.
    `close()` is called last, after the store's own.
    """

    store: Store | AsyncStore
    write_effect: Callable[[Any, str], Any] | None = None
    count_effects: Callable[[str], Any] | None = None
    elsewhere: Callable[[], Store | AsyncStore] | None = None
    before_statement: Callable[[Callable[[int], Any]], Any] | None = None
    close: Callable[[], Any] | None = None


MakeStore: TypeAlias = Callable[[ManualClock], Store | AsyncStore | StoreUnderTest]
"""Makes a fresh store that reads its time from the clock it is given."""
