"""SQLite by SQLAlchemy and Django: whatever they begin with, a transaction has the write lock from the start."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.transaction import on_commit
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import greenlet_spawn

from tests.stores import django_kinds, joined_kinds
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claimed
from twicesafe.core.record import Ownership
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.sqlalchemy import SqlalchemyStore
from twicesafe.stores.sqlalchemy_databases import TasksTurn


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a table of effects."""
    made = tmp_path / "shop.db"
    with sqlite3.connect(made) as connection:
        connection.execute("CREATE TABLE effects (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL)")
    connection.close()
    return made


def effects(path: Path) -> int:
    """How many are committed."""
    connection = sqlite3.connect(path)
    try:
        count: int = connection.execute("SELECT count(*) FROM effects").fetchone()[0]
        return count
    finally:
        connection.close()


def is_locked(path: Path) -> bool:
    """Whether somebody has the write lock."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    else:
        return False
    finally:
        connection.close()


def claimed(transaction: Any) -> Ownership:
    """Win."""
    found = transaction.claim(wish())
    assert isinstance(found, Claimed)
    return found.ownership


@pytest.mark.parametrize("begins", ["lazily", "BEGIN", "BEGIN IMMEDIATE"])
def test_an_engine_may_begin_as_it_likes(path, begins) -> None:
    """R23, K: with SQLAlchemy's defaults or its recipes for SQLite, the claim takes the write lock at once."""
    engine = create_engine(f"sqlite:///{path}")
    if begins != "lazily":
        event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begins))
    store = SqlalchemyStore(sessionmaker(engine))
    try:
        store.apply_schema()
        with store.transaction() as transaction:
            own = claimed(transaction)
            assert is_locked(path)
            joined_kinds.write(transaction.connection, "key")
            transaction.complete(own, ANSWER, KEY, BODY)
        assert effects(path) == 1
        assert not is_locked(path)
    finally:
        store.close()
        engine.dispose()


@pytest.mark.parametrize("mode", [None, "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_django_may_begin_as_it_likes(path, mode) -> None:
    """R23, K: whatever transaction_mode the settings name, the claim has the write lock before the handler runs."""
    store = django_kinds.Owned(django_kinds.alias_of("sqlite3", str(path), OPTIONS={"transaction_mode": mode}))
    try:
        store.apply_schema()
        with store.transaction() as transaction:
            own = claimed(transaction)
            assert is_locked(path)
            django_kinds.write(transaction.connection, "key")
            transaction.complete(own, ANSWER, KEY, BODY)
        assert effects(path) == 1
        assert not is_locked(path)
    finally:
        store.close()


@pytest.mark.parametrize("kind", ["SQLAlchemy", "Django"])
def test_a_transaction_that_a_handler_ended_is_found_out(path, kind) -> None:
    """R23, H2: after COMMIT sent as text no answer is recorded, and the error says what may stand."""
    engine = create_engine(f"sqlite:///{path}")
    store: Any = SqlalchemyStore(sessionmaker(engine))
    if kind == "Django":
        store = django_kinds.Owned(django_kinds.alias_of("sqlite3", str(path)))
    try:
        store.apply_schema()
        with store.transaction() as transaction:
            own = claimed(transaction)
            if kind == "Django":
                with transaction.connection.cursor() as cursor:
                    cursor.execute("COMMIT")
            else:
                transaction.connection.execute(text("COMMIT"))
            with pytest.raises(RuntimeError, match="may be committed"):
                transaction.complete(own, ANSWER, KEY, BODY)
        assert store.read(own.digest).record is None
        assert not is_locked(path)
    finally:
        store.close()
        engine.dispose()


@pytest.mark.parametrize("kind", ["SQLAlchemy", "Django"])
def test_another_process_that_writes_is_told(path, kind) -> None:
    """C8: while another process keeps the write lock, a claim says so within the driver's time-out."""
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 0.05})
    store: Any = SqlalchemyStore(sessionmaker(engine))
    if kind == "Django":
        store = django_kinds.Owned(django_kinds.alias_of("sqlite3", str(path), OPTIONS={"timeout": 0.05}))
    other = sqlite3.connect(path, isolation_level=None)
    try:
        store.apply_schema()
        other.execute("BEGIN IMMEDIATE")
        with store.transaction() as transaction, pytest.raises(StoreUnavailableError, match="locked"):
            transaction.claim(wish())
        other.execute("ROLLBACK")
        with store.transaction() as transaction:
            transaction.complete(claimed(transaction), ANSWER, KEY, BODY)
    finally:
        other.close()
        store.close()
        engine.dispose()


def test_a_hook_on_commit_may_begin_a_transaction_of_its_own(path) -> None:
    """C8, R23: Django's hooks run when their transaction's turn is over, so neither they nor rivals wait for it."""
    alias = django_kinds.alias_of("sqlite3", str(path))
    store = django_kinds.Owned(alias, busy_timeout=timedelta(milliseconds=50))

    def hook() -> None:
        with store.transaction() as transaction:
            found = transaction.claim(wish("other"))
            django_kinds.write(transaction.connection, "other")
            transaction.complete(found.ownership, ANSWER, KEY, BODY)

    try:
        store.apply_schema()
        with store.transaction() as transaction:
            own = claimed(transaction)
            on_commit(hook, using=alias)
            transaction.complete(own, ANSWER, KEY, BODY)
        assert effects(path) == 1
    finally:
        store.close()


def test_an_empty_pool_is_called_by_its_name(path) -> None:
    """C8: where the engine's pool has no connection left, the refusal says so, and not that it rolled back."""
    engine = create_engine(f"sqlite:///{path}", poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01)
    store = SqlalchemyStore(sessionmaker(engine))
    try:
        store.apply_schema()
        with (
            engine.connect(),
            store.transaction() as transaction,
            pytest.raises(StoreUnavailableError, match="pool gave no connection"),
        ):
            transaction.claim(wish())
    finally:
        store.close()
        engine.dispose()


def test_loops_that_share_a_store_end_their_own_turns_only() -> None:
    """R23, C8: a transaction ends its own event loop's turn, and never fails after its commit for another's."""
    turn = TasksTurn(0.01)

    async def other() -> None:
        await greenlet_spawn(turn.take)
        turn.end()

    async def trial() -> None:
        await greenlet_spawn(turn.take)
        await asyncio.to_thread(asyncio.run, other())
        with pytest.raises(StoreUnavailableError):
            await greenlet_spawn(TasksTurn.take, turn)
        turn.end()
        await greenlet_spawn(turn.take)
        turn.end()

    asyncio.run(trial())
