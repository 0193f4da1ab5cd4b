"""Every store keeps the contract: each check of `twicesafe.testing`, on each store, by one source for both kinds."""

from __future__ import annotations

import pytest

from tests.servers.postgresql import PostgresqlServer
from tests.stores.postgresql_kinds import KINDS, emptied_place
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


IN_MEMORY: dict[str, MakeStore] = {"memory": memory, "memory, async": memory_async}
WITHOUT: set[Need] = {STATEMENTS, TRANSACTIONS}
"""What a memory store does without. Whatever else is promised has to be kept, and the others do without nothing."""


@pytest.mark.parametrize("store", IN_MEMORY)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_memory_keeps_its_promises(store: str, check: Check) -> None:
    """B1, B4, B5, B6, C1, C4, D1, D2, D4, D6, F6, F8, G1, A3, A4, A7: the contract holds in memory."""
    [result] = check_store(IN_MEMORY[store], only=[check.name])
    applies = not WITHOUT.intersection(check.needs)
    assert result.outcome is (Outcome.PASSED if applies else Outcome.NOT_APPLICABLE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_postgresql_keeps_its_promises(postgresql_server: PostgresqlServer, kind: str, check: Check) -> None:
    """B1, B4, B5, B6, C1, C2, C4, C6, C8, D1, D2, D4, D6, F6, F8, G1, H2, A3, A4, A7, K: by every driver."""
    [result] = check_store(emptied_place(postgresql_server, kind).subject, only=[check.name])
    assert result.outcome is Outcome.PASSED
