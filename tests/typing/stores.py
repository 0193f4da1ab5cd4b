"""A user's own store and its proof, for mypy --strict."""

from __future__ import annotations

from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.contract import AsyncStore, Store
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.psycopg import AsyncPsycopgStore, PsycopgStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import ManualClock, check_store

blocking: list[Store] = [MemoryStore(), SqliteStore("records.db"), PsycopgStore("postgresql:///shop")]
"""The stores keep the contract to the letter."""

asynchronous: list[AsyncStore] = [
    AsyncMemoryStore(),
    AsyncSqliteStore("records.db"),
    AsyncpgStore("postgresql:///shop"),
    AsyncPsycopgStore("postgresql:///shop"),
]

clock = ManualClock()
prove = check_store
