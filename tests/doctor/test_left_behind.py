"""What lies in a store, and who should have been running."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.core.records import ANSWER, MINE, SECOND
from tests.doctor import shops
from tests.doctor.test_planted import codes
from twicesafe import Effects
from twicesafe.core.claims import Claim, Claimed
from twicesafe.doctor import Circumstances, diagnose
from twicesafe.outbox import Outbox
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.sealed import AsyncSealedStore, SealedStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore


def wish(number: int, effects: Effects = Effects.OPAQUE, **changes: Any) -> Claim:
    digest = number.to_bytes(32, "big")
    return Claim(digest, "user", "charge", "…", MINE, effects, bytes(16), 30 * SECOND, 3600 * SECOND)._replace(
        **changes
    )


def at(path: str, now: int, claim: Claim, *, complete: bool = False, keys: Keyring | None = None) -> None:
    """A claim of another day, by a store whose clock stood there."""
    store: Any = SqliteStore(path, clock=lambda: now)
    if keys is not None:
        store = SealedStore(store, keys=keys)
    won = store.claim(claim)
    assert type(won) is Claimed
    if complete:
        store.complete(won.ownership, ANSWER, claim.key_us, claim.key_us)
    store.close()


def days_ago(path: str, days: int) -> int:
    store = SqliteStore(path)
    now = store.now()
    store.close()
    return now - days * 86400 * SECOND


def test_operations_that_were_left_behind(tmp_path: Path) -> None:
    """R27: an operation that broke off long ago, with nobody who goes on with it, is counted."""
    path = shops.records(tmp_path)
    at(path, days_ago(path, 0) - 3600 * SECOND, wish(1, Effects.RESUMABLE, key_us=86400 * SECOND, request=b"{}"))
    (found,) = diagnose(shops.starlette_shop(tmp_path))
    assert (found.code, found.detail[:25]) == ("unsettled-old", "1 broke off, 0 unknown; t")
    assert codes(shops.starlette_shop(tmp_path), Circumstances(patience=timedelta(hours=2))) == []


def test_what_has_expired_and_is_still_there(tmp_path: Path) -> None:
    """R20: records whose retention ended days ago say that nobody reaps."""
    path = shops.records(tmp_path)
    at(path, days_ago(path, 3), wish(1), complete=True)
    assert codes(shops.starlette_shop(tmp_path)) == ["expired-kept"]


def test_messages_that_nobody_delivers(tmp_path: Path) -> None:
    """R28: a message that has waited for an hour says that no relay runs."""
    path = shops.records(tmp_path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    Outbox("/shop").add(connection, type="paid", aggregate=("order", "1"), data={})
    connection.execute("UPDATE twicesafe_outbox SET created_at = created_at - 3600000000")
    connection.execute("COMMIT")
    connection.close()
    assert codes(shops.starlette_shop(tmp_path)) == ["messages-old"]


def test_a_key_of_the_seal_that_is_missing(tmp_path: Path) -> None:
    """R22: answers that were encrypted by another key are found before anybody asks for them."""
    path = shops.records(tmp_path)
    old, new = Keyring({"old": Keyring.new_key()}, "old"), Keyring({"new": Keyring.new_key()}, "new")
    at(path, days_ago(path, 0), wish(1, key_us=86400 * SECOND), complete=True, keys=old)

    def sealed(keys: Keyring) -> Any:
        return AsyncSealedStore(AsyncSqliteStore(path), keys=keys)

    assert codes(shops.starlette_shop(tmp_path, store=sealed(old))) == []
    (found,) = diagnose(shops.starlette_shop(tmp_path, store=sealed(new)))
    assert (found.code, "'old'" in found.detail or "old" in found.detail) == ("seal-key-missing", True)
    assert codes(shops.starlette_shop(tmp_path)) == ["seal-key-missing"]
