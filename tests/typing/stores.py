"""A user's own store and its proof, for mypy --strict."""

from __future__ import annotations

from twicesafe.stores.contract import AsyncStore, Store
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import ManualClock, check_store

blocking: list[Store] = [MemoryStore(), SqliteStore("records.db")]
"""The stores keep the contract to the letter."""

asynchronous: list[AsyncStore] = [AsyncMemoryStore(), AsyncSqliteStore("records.db")]

clock = ManualClock()
prove = check_store
