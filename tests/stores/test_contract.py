"""Every store keeps the contract: each check of `twicesafe.testing`, on each store, by one source for both kinds."""

from __future__ import annotations

import pytest

from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.testing import CHECKS, MakeStore, ManualClock, Outcome, StoreUnderTest, check_store
from twicesafe.testing.check import STATEMENTS, TRANSACTIONS, Check, Need


def memory(clock: ManualClock) -> StoreUnderTest:
    """Both kinds over one dict."""
    store = MemoryStore(clock=clock)
    return StoreUnderTest(store=store, elsewhere=lambda: AsyncMemoryStore(store))


def memory_async(clock: ManualClock) -> StoreUnderTest:
    """The same the other way round."""
    store = MemoryStore(clock=clock)
    return StoreUnderTest(store=AsyncMemoryStore(store), elsewhere=lambda: store)


STORES: dict[str, tuple[MakeStore, set[Need]]] = {
    "memory": (memory, {STATEMENTS, TRANSACTIONS}),
    "memory, async": (memory_async, {STATEMENTS, TRANSACTIONS}),
}
"""How each store is made, and what it does without: whatever else is promised has to be kept."""


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_stores_keep_their_promises(store: str, check: Check) -> None:
    """B1, B4, B5, B6, C1, C2, C4, C6, C8, D1, D2, D4, D6, F6, F8, G1, H2, A3, A4, A7, K: the contract holds."""
    make, without = STORES[store]
    [result] = check_store(make, only=[check.name])
    applies = not without.intersection(check.needs)
    assert result.outcome is (Outcome.PASSED if applies else Outcome.NOT_APPLICABLE)
