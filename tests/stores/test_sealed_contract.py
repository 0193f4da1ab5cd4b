"""The contract holds over sealed stores, encrypted or compressed only, on memory, SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import FEWER_KEYS, FEWER_RIVALS
from tests.stores.postgresql_kinds import KINDS, emptied_place
from tests.stores.test_sqlite_contract import on_files
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sealed import AsyncSealedStore, SealedStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import CHECKS, ManualClock, Outcome, StoreUnderTest, check_store
from twicesafe.testing.check import SETTLES_STALE, STATEMENTS, TRANSACTIONS, Check

RING = Keyring({"first": Keyring.new_key()}, current="first")


def sealed(subject: StoreUnderTest, **settings: Any) -> StoreUnderTest:
    """What is under test, sealed, and what is elsewhere too."""

    def wrap(store: Any) -> Any:
        kind: Callable[..., Any] = AsyncSealedStore if hasattr(store, "aclose") else SealedStore
        return kind(store, **settings)

    elsewhere = subject.elsewhere
    return StoreUnderTest(
        store=wrap(subject.store),
        write_effect=subject.write_effect,
        count_effects=subject.count_effects,
        elsewhere=None if elsewhere is None else lambda: wrap(elsewhere()),
        before_statement=subject.before_statement,
        close=subject.close,
    )


def memory(clock: ManualClock) -> StoreUnderTest:
    """Both kinds over one dict."""
    store = MemoryStore(clock=clock)
    return StoreUnderTest(store=store, elsewhere=lambda: AsyncMemoryStore(store))


def memory_async(clock: ManualClock) -> StoreUnderTest:
    """The other way round."""
    store = MemoryStore(clock=clock)
    return StoreUnderTest(store=AsyncMemoryStore(store), elsewhere=lambda: store)


SETTINGS: dict[str, dict[str, Any]] = {
    "encrypted": {"keys": RING, "compress_from": 0},
    "compressed": {"compress_from": 0},
}


@pytest.mark.parametrize(("make", "settings"), [(memory, "encrypted"), (memory_async, "compressed")],
                         ids=["blocking, encrypted", "asyncio, compressed"])  # fmt: skip
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_sealed_memory_store_keeps_its_promises(make: Any, settings: str, check: Check) -> None:
    """R22, I1, I3, I4, I5: the contract holds over memory, encrypted or compressed only."""
    [result] = check_store(lambda clock: sealed(make(clock), **SETTINGS[settings]), only=[check.name], keys=FEWER_KEYS)
    applies = not {STATEMENTS, TRANSACTIONS}.intersection(check.needs)
    if SETTLES_STALE in check.needs:
        applies = hasattr(make(ManualClock()).store, "settle_stale")
    assert result.outcome is (Outcome.PASSED if applies else Outcome.NOT_APPLICABLE), result.reason


@pytest.mark.parametrize("kinds", [(SqliteStore, AsyncSqliteStore), (AsyncSqliteStore, SqliteStore)],
                         ids=["blocking", "asyncio"])  # fmt: skip
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_sealed_sqlite_store_keeps_its_promises(tmp_path: Path, kinds: tuple[Any, Any], check: Check) -> None:
    """R22, R23, I1, I3, I4, I5: the contract holds over SQLite, transactions included."""
    make = on_files(tmp_path, *kinds)
    [result] = check_store(lambda clock: sealed(make(clock), keys=RING), only=[check.name], keys=FEWER_KEYS)
    assert result.outcome is (Outcome.NOT_APPLICABLE if STATEMENTS in check.needs else Outcome.PASSED), result.reason


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_sealed_postgresql_store_keeps_its_promises(
    postgresql_server: PostgresqlServer, kind: str, check: Check
) -> None:
    """R22, R23, I1, I3, I4, I5: the contract holds over PostgreSQL, transactions included."""
    assert kind in KINDS
    place = emptied_place(postgresql_server, kind)
    [result] = check_store(
        lambda clock: sealed(place.subject(clock), keys=RING),
        only=[check.name], rivals=FEWER_RIVALS, keys=FEWER_KEYS,
    )  # fmt: skip
    assert result.outcome is Outcome.PASSED, result.reason
