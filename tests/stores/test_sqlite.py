"""What only SQLite does: files, durability, one writer at a time, and errors told apart by code."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.stores.claims import ANSWER, BODY, KEY, LEASE, OTHER_REQUEST, wish
from tests.stores.sqlite_file import BOUND, SOON, Blocked, File, effect, failure
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import RecordState
from twicesafe.errors import (
    AmbiguousWriteError,
    CommitRefusedError,
    ConfigurationError,
    StoreError,
    StoreUnavailableError,
)
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.stores.sqlite_connection import SqliteFile
from twicesafe.testing import ManualClock

# --- files and durability ---------------------------------------------------------------------------------------------


def test_every_connection_is_durable(file: File) -> None:
    """I11: whoever writes, writes in WAL mode and waits for the disk."""
    store = file.store()
    with store.transaction() as transaction:
        transaction.begin()
        (mode,), (level,) = (transaction.connection.execute(f"PRAGMA {name}").fetchone()
                             for name in ("journal_mode", "synchronous"))  # fmt: skip
        assert (mode, level) == ("wal", 2)
    store.claim(wish())
    assert store._writer._worker is not None
    writer = store._writer._worker._connection
    assert writer is not None
    assert writer.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert writer.execute("PRAGMA synchronous").fetchone()[0] == 2


@pytest.mark.parametrize("name", ["", ":memory:", "file:records.db?mode=memory"])
def test_a_database_that_is_no_file_is_refused(name: str) -> None:
    """R42: connections to a database in memory would not see each other's records, so none is taken."""
    for store in (SqliteStore, AsyncSqliteStore):
        with pytest.raises(ConfigurationError, match="path of a file"):
            store(name)


def test_a_wait_below_nothing_is_refused(tmp_path: Path) -> None:
    """R42: a busy timeout below zero is an error where it is set."""
    with pytest.raises(ConfigurationError, match="busy_timeout"):
        SqliteStore(tmp_path / "records.db", busy_timeout=timedelta(seconds=-1))


def test_a_later_chdir_leads_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I1: a relative path is taken from where the store was made, whatever happens to the working directory later."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("records.db")
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.apply_schema()
    store.claim(wish())
    store.close()
    assert (tmp_path / "records.db").exists() and not list((tmp_path / "elsewhere").iterdir())


def test_a_file_that_cannot_be_opened_is_an_unavailable_store(tmp_path: Path) -> None:
    """R21: a missing folder, or a file that is no database, is StoreUnavailableError from every way in."""
    (tmp_path / "text").write_text("this is no database, however long it goes on" * 100)
    for path in (tmp_path / "missing" / "records.db", tmp_path / "text"):
        store = SqliteStore(path, busy_timeout=SOON)
        transaction = store.transaction()
        for call in (partial(store.claim, wish()), store.apply_schema, store.check_schema, store.purge,
                     transaction.begin):  # fmt: skip
            with pytest.raises(StoreUnavailableError):
                call()
        store.close()


# --- one writer at a time ---------------------------------------------------------------------------------------------


def test_readers_do_not_wait_for_a_writer(file: File) -> None:
    """R11, C8: while another process writes for long, replays, conflicts and mismatches are answered all the same."""
    store = file.store()
    won = store.claim(wish("done"))
    assert isinstance(won, Claimed)
    store.complete(won.ownership, ANSWER, KEY, BODY)
    assert isinstance(store.claim(wish("running")), Claimed)
    file.plain.execute("BEGIN IMMEDIATE")
    asked = [("done", {}, Verdict.REPLAY), ("running", {}, Verdict.IN_PROGRESS),
             ("done", {"fingerprint": OTHER_REQUEST}, Verdict.MISMATCH)]  # fmt: skip
    for key, changes, verdict in asked:
        found = store.claim(wish(key, **changes))
        assert isinstance(found, Existing) and found.verdict is verdict
        with store.transaction() as transaction:
            found = transaction.claim(wish(key, **changes))
            assert isinstance(found, Existing) and found.verdict is verdict
    file.plain.execute("ROLLBACK")


def test_a_write_that_waits_too_long_changes_nothing(file: File) -> None:
    """R21, C8: past the busy timeout a write is StoreUnavailableError and never happens, not even later."""
    store = file.store(busy_timeout=SOON)
    won = store.claim(wish("claimed"))
    assert isinstance(won, Claimed)
    file.plain.execute("BEGIN IMMEDIATE")
    calls: list[Callable[[], object]] = [
        lambda: store.claim(wish()),
        lambda: store.complete(won.ownership, ANSWER, KEY, BODY),
        lambda: store.release(won.ownership),
        lambda: store.read(won.ownership.digest),
        lambda: store.transaction().claim(wish()),
        lambda: store.transaction().begin(),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailableError, match="nothing was changed"):
            call()
    file.plain.execute("ROLLBACK")
    with store.transaction() as transaction:
        transaction.begin()
    found = store.read(won.ownership.digest)
    assert file.records() == 1
    assert found.record is not None and found.record.state is RecordState.CLAIMED
    store.complete(won.ownership, ANSWER, KEY, BODY)


def test_a_write_gets_its_turn_when_the_writer_is_done(file: File, blocked: Blocked) -> None:
    """C8, R10: writes that wait for another process go on as soon as it has committed."""
    store = file.store()
    file.plain.execute("BEGIN IMMEDIATE")
    found: list[object] = []
    threads = [threading.Thread(target=lambda n=n: found.append(store.claim(wish(f"key-{n}")))) for n in range(8)]
    for thread in threads:
        thread.start()
    blocked.wait_for(8)
    assert found == []
    file.plain.execute("COMMIT")
    for thread in threads:
        thread.join(BOUND)
    assert file.records() == 8
    assert all(isinstance(one, Claimed) for one in found)


def test_transactions_of_one_process_queue_without_end(file: File) -> None:
    """C8: more transactions at once than there could be connections wait for each other in bounded time, or say so."""
    patient, hasty = file.store(), file.store(busy_timeout=SOON)
    with patient.transaction() as holder:
        holder.begin()
        with pytest.raises(StoreUnavailableError), hasty.transaction() as other:
            other.begin()
        effect(holder)
        holder.commit()
    with hasty.transaction() as first:
        first.begin()
        with pytest.raises(StoreUnavailableError, match="another transaction of this process"):
            hasty.transaction().begin()
    assert file.effects() == 1


# --- closing, errors, the clock ---------------------------------------------------------------------------------------


def test_a_closed_store_says_so(file: File) -> None:
    """R42: closing twice is fine; afterwards every call says that the store is closed and changes nothing."""
    store = file.store()
    store.claim(wish())
    with store.transaction() as transaction:
        transaction.begin()
        store.close()
        store.close()
        effect(transaction)
        transaction.commit()
    for call in (lambda: store.claim(wish("other")), store.purge, lambda: store.transaction().begin()):
        with pytest.raises(StoreUnavailableError, match="closed"):
            call()
    assert (file.effects(), file.records()) == (1, 1)


def test_closing_finishes_what_was_begun(file: File, blocked: Blocked) -> None:
    """I11: what was asked for before the store is closed is still done."""
    store = file.store()
    file.plain.execute("BEGIN IMMEDIATE")
    thread = threading.Thread(target=store.claim, args=(wish(),))
    thread.start()
    blocked.wait_for(1)
    closing_thread = threading.Thread(target=store.close)
    closing_thread.start()
    file.plain.execute("COMMIT")
    closing_thread.join(BOUND)
    thread.join(BOUND)
    assert file.records() == 1


@pytest.mark.parametrize(
    ("code", "committing", "expected"),
    [
        (sqlite3.SQLITE_BUSY, False, StoreUnavailableError),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, False, StoreUnavailableError),
        (sqlite3.SQLITE_BUSY, True, StoreUnavailableError),
        (sqlite3.SQLITE_IOERR_WRITE, False, StoreUnavailableError),
        (sqlite3.SQLITE_IOERR_FSYNC, True, AmbiguousWriteError),
        (sqlite3.SQLITE_IOERR_WRITE, True, AmbiguousWriteError),
        (sqlite3.SQLITE_CORRUPT, True, AmbiguousWriteError),
        (sqlite3.SQLITE_FULL, True, StoreUnavailableError),
        (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, True, CommitRefusedError),
        (sqlite3.SQLITE_CANTOPEN, False, StoreUnavailableError),
    ],
)
def test_errors_are_told_apart_by_code(tmp_path: Path, code: int, committing: bool, expected: type[StoreError]) -> None:
    """K: what an error means is read from its code, with messages in any language; only a commit can be in doubt."""
    file = SqliteFile(tmp_path / "records.db", SOON, ManualClock(), lambda _: None)
    meant = file.error(failure(code), committing=committing)
    assert type(meant) is expected
    assert "another language" not in str(meant)


def test_leases_are_judged_by_the_hosts_clock(tmp_path: Path) -> None:
    """I12: without a clock of its own, a store's instants are the host's, in microseconds."""
    store = SqliteStore(tmp_path / "records.db")
    store.apply_schema()
    before = store.now()
    won = store.claim(wish())
    assert isinstance(won, Claimed)
    record = store.read(won.ownership.digest).record
    assert record is not None
    assert before <= record.created_at <= store.now()
    assert LEASE <= record.lease_until - record.created_at < LEASE + 1_000_000
    assert abs(before - (tmp_path / "records.db").stat().st_mtime_ns // 1000) < 60_000_000
    store.close()
