"""A user's own store and its proof, for mypy --strict."""

from __future__ import annotations

from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.contract import AsyncStore, Store
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.psycopg import AsyncPsycopgStore, PsycopgStore
from twicesafe.stores.redis import AsyncRedisStore, RedisStore
from twicesafe.stores.sealed import AsyncSealedStore, SealedStore
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

blocking.append(RedisStore("redis://localhost", records=blocking[0]))
asynchronous.append(AsyncRedisStore("redis://localhost", records=asynchronous[0]))

keys = Keyring({"2026-11": Keyring.new_key()}, current="2026-11")
blocking.append(SealedStore(blocking[0], keys=keys))
asynchronous.append(AsyncSealedStore(asynchronous[0], keys=keys))
"""Nor do they lose it when they are sealed."""

clock = ManualClock()
prove = check_store
