"""Commits in groups: one for many, none told too early, and each fails for itself alone."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from tests.stores.claims import ANSWER, BODY, KEY, digest_of, wish
from tests.stores.sqlite_file import Blocked, File, Watched, effect, failure
from twicesafe.core.claims import Claimed, Existing
from twicesafe.errors import (
    AmbiguousWriteError,
    LeaseLostError,
    StoreUnavailableError,
)
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.stores.sqlite_connection import SqliteConnection
from twicesafe.stores.sqlite_writer import _Worker


async def together(store: AsyncSqliteStore, file: File, blocked: Blocked, *calls: Any, refused: int = 0) -> list[Any]:
    """Ask for all of it while the write lock is taken, so that all of it is written in one group.

    `refused` of the calls do not get so far.
    """
    file.plain.execute("BEGIN IMMEDIATE")
    asked = [asyncio.ensure_future(call) for call in calls]
    await asyncio.to_thread(blocked.wait_for, len(calls) - refused)
    file.plain.execute("ROLLBACK")
    return await asyncio.gather(*asked, return_exceptions=True)


def test_many_are_written_by_one_commit(file: File, blocked: Blocked, monkeypatch: pytest.MonkeyPatch) -> None:
    """I11, R42: claims that wait together are committed together, and each is on the disk before it is answered."""

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        await store.claim(wish("first"))
        watched = Watched(monkeypatch)
        told: list[int] = []

        async def claim(n: int) -> None:
            assert isinstance(await store.claim(wish(f"key-{n}")), Claimed)
            told.append(file.records())

        await together(store, file, blocked, *(claim(n) for n in range(100)))
        assert told == [101] * 100
        assert watched.commits <= 3
        await store.aclose()

    asyncio.run(main())


def test_a_poisoned_statement_hurts_nobody_else(file: File, blocked: Blocked, monkeypatch: pytest.MonkeyPatch) -> None:
    """I11, R10: in one group, a claim that the database refuses and an owner that lost fail alone; the others stand."""

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        first = await store.claim(wish("first"))
        assert isinstance(first, Claimed)
        watched = Watched(monkeypatch)
        late = first.ownership._replace(epoch=7)
        found = await together(
            store,
            file,
            blocked,
            store.claim(wish("a")),
            store.claim(wish("poison", digest=b"too short")),
            store.claim(wish("poison", fingerprint=None)),
            store.complete(late, ANSWER, KEY, BODY),
            store.claim(wish("a")),
            store.complete(first.ownership, ANSWER, KEY, BODY),
            store.claim(wish("b")),
            refused=1,
        )
        assert file.records() == 3
        assert watched.commits <= 2
        kinds = [type(one) for one in found]
        assert kinds == [Claimed, StoreUnavailableError, AttributeError, LeaseLostError, Existing, type(None), Claimed]
        await store.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM])
def test_a_group_that_sqlite_gives_up_is_written_one_by_one(
    file: File, blocked: Blocked, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """I11, R42: where one job makes SQLite give up the whole transaction, it fails, and all others are written."""

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        await store.claim(wish("first"))
        once = SqliteConnection.once

        def give_up(connection: SqliteConnection, statement: Any) -> Any:
            if statement.name == "claim" and digest_of("poison") in statement.parameters:
                # As a full disk does: the statement fails and takes the transaction with it.
                sqlite3.Connection.rollback(connection)
                raise failure(code)
            return once(connection, statement)

        monkeypatch.setattr(SqliteConnection, "once", give_up)
        keys = ["a", "b", "poison", "c"]
        found = await together(store, file, blocked, *(store.claim(wish(key)) for key in keys))
        assert file.records() == 4
        assert [type(one) for one in found] == [Claimed, Claimed, StoreUnavailableError, Claimed]
        await store.aclose()

    asyncio.run(main())


def test_a_commit_that_certainly_failed_is_made_one_by_one(
    file: File, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11, R42: a group whose commit finds the disk full is written job by job, and those that fit stand."""

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        await store.claim(wish("first"))
        watched = Watched(monkeypatch)

        def full(connection: SqliteConnection, commit: Any) -> Any:
            rows = sqlite3.Connection.execute(connection, "SELECT count(*) FROM twicesafe_records").fetchone()[0]
            if rows > 3:
                sqlite3.Connection.rollback(connection)
                raise failure(sqlite3.SQLITE_FULL)
            return commit(connection)

        watched.instead = full
        found = await together(store, file, blocked, *(store.claim(wish(key)) for key in "abcd"))
        assert file.records() == 3
        assert [type(one) for one in found] == [Claimed, Claimed, StoreUnavailableError, StoreUnavailableError]
        await store.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("stands", [True, False])
def test_a_commit_whose_answer_is_lost_is_ambiguous(
    file: File, monkeypatch: pytest.MonkeyPatch, *, stands: bool
) -> None:
    """B6, K: a commit that fails on its way to the disk may stand; asked again, the owner recognises its own claim."""
    store = file.store()
    mine = wish()
    watched = Watched(monkeypatch)

    def lose(connection: SqliteConnection, commit: Any) -> Any:
        if stands:
            commit(connection)
        else:
            sqlite3.Connection.rollback(connection)
        raise failure(sqlite3.SQLITE_IOERR_FSYNC)

    watched.instead = lose
    with pytest.raises(AmbiguousWriteError):
        store.claim(mine)
    assert file.records() == (1 if stands else 0)
    watched.instead = None
    found = store.claim(mine)
    assert isinstance(found, Claimed) and found.ownership.owner == mine.owner and found.ownership.epoch == 1
    watched.instead = lose
    with pytest.raises(AmbiguousWriteError):
        store.complete(found.ownership, ANSWER, KEY, BODY)
    watched.instead = None
    store.complete(found.ownership, ANSWER, KEY, BODY)
    assert file.records() == 1
    with pytest.raises(LeaseLostError):
        store.complete(found.ownership._replace(owner=bytes(16)), ANSWER, KEY, BODY)


@pytest.mark.parametrize("stands", [True, False])
def test_a_transaction_whose_commit_is_in_doubt_is_read_back(
    file: File, monkeypatch: pytest.MonkeyPatch, *, stands: bool
) -> None:
    """K, R23: after a COMMIT whose answer was lost the row says which: effect and answer are both there, or neither."""
    store = file.store()
    watched = Watched(monkeypatch)

    def lose(connection: SqliteConnection, commit: Any) -> Any:
        if stands:
            commit(connection)
        else:
            sqlite3.Connection.rollback(connection)
        raise failure(sqlite3.SQLITE_IOERR_FSYNC)

    with store.transaction() as transaction:
        found = transaction.claim(wish())
        assert isinstance(found, Claimed)
        effect(transaction)
        watched.instead = lose
        with pytest.raises(AmbiguousWriteError):
            transaction.complete(found.ownership, ANSWER, KEY, BODY)
        watched.instead = None
        record = store.read(found.ownership.digest).record
    assert file.effects() == (1 if stands else 0)
    assert (record is not None and record.ownership == found.ownership) is stands


def test_nobody_waits_for_ever_for_what_nobody_foresaw(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    """C8, R42: an error that the writer does not know reaches everybody who waits, and the next ones are served."""
    store = file.store()
    connected = _Worker._connected
    failures = [MemoryError("unforeseen")]

    def fail(worker: _Worker) -> SqliteConnection:
        if failures:
            raise failures.pop()
        return connected(worker)

    monkeypatch.setattr(_Worker, "_connected", fail)
    with pytest.raises(MemoryError, match="unforeseen"):
        store.claim(wish())
    assert isinstance(store.claim(wish()), Claimed)
    assert file.records() == 1
