"""What only SQLite does: one writer at a time, many processes on one file, commits in groups."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.stores.claims import ANSWER, BODY, HEAD, KEY, LEASE, OTHER_REQUEST, digest_of, wish
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, RecordState
from twicesafe.errors import (
    AmbiguousWriteError,
    ConfigurationError,
    LeaseLostError,
    StoreError,
    StoreUnavailableError,
)
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.stores.sqlite_connection import SqliteConnection, SqliteFile
from twicesafe.stores.sqlite_writer import Job, Writer
from twicesafe.testing import ManualClock

SOON = timedelta(milliseconds=50)
PROCESSES = 16
BOUND = 60

RIVAL = """
import os, sqlite3, sys
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claimed
from twicesafe.core.lifecycle import Verdict
from twicesafe.stores.sqlite import SqliteStore

path, way = sys.argv[1:]
store = SqliteStore(path)
sys.stdin.read()
won = 0
for key in range(8):
    if way == "leased":
        found = store.claim(wish(f"key-{key}"))
        if isinstance(found, Claimed):
            with sqlite3.connect(path, timeout=30) as ledger:
                ledger.execute("INSERT INTO ledger (name) VALUES (?)", (f"key-{key}",))
            ledger.close()
            store.complete(found.ownership, ANSWER, KEY, BODY)
            won += 1
        else:
            assert found.verdict in (Verdict.IN_PROGRESS, Verdict.REPLAY), found
    else:
        with store.transaction() as transaction:
            found = transaction.claim(wish(f"key-{key}"))
            if isinstance(found, Claimed):
                transaction.connection.execute("INSERT INTO ledger (name) VALUES (?)", (f"key-{key}",))
                transaction.complete(found.ownership, ANSWER, KEY, BODY)
                won += 1
            else:
                assert found.verdict is Verdict.REPLAY, found
store.close()
print(won)
"""

VICTIM = """
import sys
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.stores.sqlite import SqliteStore

path, where = sys.argv[1:]
store = SqliteStore(path)

def reached(place):
    if place == where:
        print(place, flush=True)
        sys.stdin.read()

if where.startswith("leased"):
    own = store.claim(wish()).ownership
    reached("leased, claimed")
    store.complete(own, ANSWER, KEY, BODY)
    reached("leased, completed")
else:
    with store.transaction() as transaction:
        own = transaction.claim(wish()).ownership
        reached("claimed")
        transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key')")
        reached("effect done")
        transaction.complete(own, ANSWER, KEY, BODY)
        reached("completed")
"""


class File:
    """One file with records and a ledger, and stores on it that are closed in the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.opened: list[SqliteStore] = []
        self.store().apply_schema()
        self.plain = sqlite3.connect(path, isolation_level=None, timeout=BOUND, check_same_thread=False)
        self.plain.execute("CREATE TABLE ledger (name TEXT NOT NULL)")

    def store(self, **settings: Any) -> SqliteStore:
        """A blocking store."""
        store = SqliteStore(self.path, clock=self.clock, **settings)
        self.opened.append(store)
        return store

    def effects(self, name: str = "key") -> int:
        """Committed effects."""
        count: int = self.plain.execute("SELECT count(*) FROM ledger WHERE name = ?", (name,)).fetchone()[0]
        return count

    def records(self) -> int:
        """Committed records."""
        count: int = self.plain.execute("SELECT count(*) FROM twicesafe_records").fetchone()[0]
        return count

    def run(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Another process on the file."""
        return subprocess.Popen(
            [sys.executable, "-c", program, str(self.path), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def close(self) -> None:
        """Close everything."""
        for store in self.opened:
            store.close()
        self.plain.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    """A fresh file."""
    made = File(tmp_path / "records.db")
    yield made
    made.close()


def effect(transaction: Any, name: str = "key") -> None:
    """The application's own row."""
    transaction.connection.execute("INSERT INTO ledger (name) VALUES (?)", (name,))


def outputs(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What they printed; each must have ended well."""
    found = []
    for process in processes:
        out, complaint = process.communicate(timeout=BOUND)
        assert process.returncode == 0, complaint
        found.append(out)
    return found


class Blocked:
    """Knows how many jobs have found the write lock taken, and lets a test wait until so many have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waiting = 0
        self._changed = threading.Condition()
        not_begun = Writer._not_begun

        def notice(writer: Writer, waiting: list[Job], error: sqlite3.Error) -> list[Job]:
            with self._changed:
                self._waiting = len(waiting)
                self._changed.notify_all()
            return not_begun(writer, waiting, error)

        monkeypatch.setattr(Writer, "_not_begun", notice)

    def wait_for(self, jobs: int) -> None:
        """Until `jobs` jobs wait for the write lock."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._waiting >= jobs, BOUND)


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Blocked:
    """To wait until writers wait."""
    return Blocked(monkeypatch)


# --- many processes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["leased", "transactional"])
def test_one_of_many_processes_wins_each_key(file: File, way: str) -> None:
    """I1, C1, R10: of 16 processes that claim the same keys at once, one runs each; nobody meets an error."""
    started = [file.run(RIVAL, way) for _ in range(PROCESSES)]
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    won = [int(out) for out in outputs(started)]
    assert [file.effects(f"key-{key}") for key in range(8)] == [1] * 8
    assert sum(won) == 8


@pytest.mark.parametrize(
    ("where", "effects", "verdict"),
    [
        ("claimed", 0, None),
        ("effect done", 0, None),
        ("completed", 1, Verdict.REPLAY),
        ("leased, claimed", 0, Verdict.IN_PROGRESS),
        ("leased, completed", 0, Verdict.REPLAY),
    ],
)
def test_a_killed_process_leaves_all_or_nothing(file: File, where: str, effects: int, verdict: Verdict | None) -> None:
    """A7, R23, I11, B5: SIGKILL leaves effect and answer or neither, and what was told to be durable is there."""
    process = file.run(VICTIM, where)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == where
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=BOUND)
    assert file.effects() == effects
    store = SqliteStore(file.path)
    with store.transaction() as transaction:
        found = transaction.claim(wish(effects=Effects.TRANSACTIONAL))
        if verdict is None:
            assert isinstance(found, Claimed)
            effect(transaction)
            transaction.complete(found.ownership, ANSWER, KEY, BODY)
            assert file.effects() == 1
        else:
            assert isinstance(found, Existing) and found.verdict is verdict
    store.close()


def test_a_store_works_on_in_a_forked_process(tmp_path: Path) -> None:
    """R10: a store that was used before a fork, as under a pre-forking server, works in parent and child."""
    program = """
import os, sys
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claimed
from twicesafe.stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
store.apply_schema()
def use(key):
    own = store.claim(wish(key)).ownership
    store.complete(own, ANSWER, KEY, BODY)
    with store.transaction() as transaction:
        own = transaction.claim(wish(key + " in a transaction")).ownership
        transaction.complete(own, ANSWER, KEY, BODY)
use("before")
child = os.fork()
if child == 0:
    use("child")
    store.close()
    os._exit(0)
use("parent")
assert os.waitpid(child, 0)[1] == 0
use("after")
store.close()
"""
    path = tmp_path / "records.db"
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(path)], capture_output=True, text=True, timeout=BOUND
    )
    assert ended.returncode == 0, ended.stderr
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("SELECT count(*) FROM twicesafe_records WHERE state = 'completed'").fetchone()[0] == 8
        assert plain.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_a_forgotten_store_does_not_keep_a_process_from_ending(tmp_path: Path) -> None:
    """R42: a process whose stores nobody closed ends by itself, and with what it was told to be durable."""
    program = """
import asyncio, sys
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore

blocking = SqliteStore(sys.argv[1])
blocking.apply_schema()
blocking.complete(blocking.claim(wish("blocking")).ownership, ANSWER, KEY, BODY)
store = AsyncSqliteStore(sys.argv[1])
async def main():
    async with store.transaction() as transaction:
        own = (await transaction.claim(wish())).ownership
        await transaction.complete(own, ANSWER, KEY, BODY)
asyncio.run(main())
"""
    path = tmp_path / "records.db"
    ended = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=BOUND)
    assert ended.returncode == 0, ended.stderr
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("SELECT count(*) FROM twicesafe_records WHERE state = 'completed'").fetchone()[0] == 2


# --- durability -------------------------------------------------------------------------------------------------------


def test_every_connection_is_durable(file: File) -> None:
    """I11: whoever writes, writes in WAL mode and waits for the disk."""
    store = file.store()
    with store.transaction() as transaction:
        transaction.begin()
        (mode,), (level,) = (transaction.connection.execute(f"PRAGMA {name}").fetchone()
                             for name in ("journal_mode", "synchronous"))  # fmt: skip
        assert (mode, level) == ("wal", 2)
    store.claim(wish())
    writer = store._writer._connection
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


# --- commits in groups ------------------------------------------------------------------------------------------------


class Watched:
    """Counts the commits of a store's writer, and does something in their place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits = 0
        self.instead: Callable[[SqliteConnection, Callable[[SqliteConnection], Any]], Any] | None = None
        commit = SqliteConnection._commit

        def count(connection: SqliteConnection) -> Any:
            self.commits += 1
            if self.instead is not None:
                return self.instead(connection, commit)
            return commit(connection)

        monkeypatch.setattr(SqliteConnection, "_commit", count)


def failure(code: int) -> sqlite3.OperationalError:
    """What SQLite would raise."""
    error = sqlite3.OperationalError("in another language")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_ANY"
    return error


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


# --- the handler's connection -----------------------------------------------------------------------------------------


def claimed(transaction: Any, key: str = "key") -> Any:
    """Win, in a transaction."""
    found = transaction.claim(wish(key))
    assert isinstance(found, Claimed), found
    return found.ownership


ENDINGS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "commit()": lambda connection: connection.commit(),
    "rollback()": lambda connection: connection.rollback(),
    "with": lambda connection: connection.__exit__(None, None, None),
    "COMMIT": lambda connection: connection.execute("COMMIT"),
    "end": lambda connection: connection.execute("end transaction"),
    "ROLLBACK": lambda connection: connection.execute("ROLLBACK"),
    "executescript": lambda connection: connection.executescript("SELECT 1;"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_handler_cannot_end_its_transaction(file: File, ending: str) -> None:
    """R23, I2: whichever way a handler tries to commit or roll back, it gets an error and nothing was committed."""
    store = file.store()
    for _ in range(2):
        with store.transaction() as transaction:
            own = claimed(transaction)
            effect(transaction)
            with pytest.raises(sqlite3.Error):
                ENDINGS[ending](transaction.connection)
            assert file.effects() == 0
            assert transaction.connection.in_transaction
            transaction.release(own)
    assert file.effects() == 0
    with store.transaction() as transaction:
        own = claimed(transaction)
        transaction.connection.execute("SAVEPOINT mine")
        effect(transaction)
        transaction.connection.execute("ROLLBACK TO mine")
        effect(transaction)
        transaction.connection.execute("RELEASE mine")
        transaction.complete(own, ANSWER, KEY, BODY)
    assert file.effects() == 1


def test_what_sqlite_rolled_back_is_not_recorded(file: File) -> None:
    """R23, H2: where a handler's failed statement made SQLite roll back everything, no answer is recorded for it."""
    store = file.store()
    file.plain.execute("CREATE UNIQUE INDEX once ON ledger (name)")
    file.plain.execute("INSERT INTO ledger (name) VALUES ('taken')")
    with store.transaction() as transaction:
        own = claimed(transaction)
        effect(transaction)
        with pytest.raises(sqlite3.IntegrityError):
            transaction.connection.execute("INSERT OR ROLLBACK INTO ledger (name) VALUES ('taken')")
        with pytest.raises(StoreUnavailableError, match="nothing was changed"):
            transaction.complete(own, ANSWER, KEY, BODY)
    assert (file.effects(), file.records()) == (0, 0)


def test_a_commit_that_a_constraint_refuses_is_not_a_success(file: File) -> None:
    """H2: a deferred constraint that fails at the commit rolls back, is not in doubt, and leaves the file unlocked."""
    store = file.store(configure=lambda connection: connection.execute("PRAGMA foreign_keys = ON"))
    file.plain.execute("CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
    file.plain.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    with store.transaction() as transaction:
        own = claimed(transaction)
        effect(transaction)
        transaction.connection.execute("INSERT INTO child VALUES (1)")
        with pytest.raises(StoreUnavailableError):
            transaction.complete(own, ANSWER, KEY, BODY)
        file.plain.execute("INSERT INTO ledger (name) VALUES ('other')")
    assert (file.effects(), file.records()) == (0, 0)


def test_a_cursor_left_open_is_named(file: File) -> None:
    """R21: a handler that has not read its statement to the end is told so, and nothing is half committed."""
    store = file.store()
    with store.transaction() as transaction:
        own = claimed(transaction)
        cursor = transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key'), ('key') RETURNING name")
        with pytest.raises(StoreUnavailableError, match="close the cursor"):
            transaction.complete(own, ANSWER, KEY, BODY)
        cursor.close()
    assert (file.effects(), file.records()) == (0, 0)


def test_a_handlers_row_factory_is_its_own(file: File) -> None:
    """R23: a row factory that a handler sets disturbs neither the record nor the next handler."""
    store = file.store(configure=lambda connection: setattr(connection, "row_factory", sqlite3.Row))
    for _ in range(2):
        with store.transaction() as transaction:
            own = claimed(transaction)
            assert transaction.connection.row_factory is sqlite3.Row
            transaction.connection.row_factory = lambda cursor, row: None
            transaction.complete(own, HEAD, KEY, BODY)
        with store.transaction() as transaction:
            found = transaction.claim(wish())
            assert isinstance(found, Existing) and found.verdict is Verdict.GONE
        file.plain.execute("DELETE FROM twicesafe_records")


def test_a_handler_that_closes_its_connection_harms_only_itself(file: File) -> None:
    """R23: a connection closed inside the handler is an error of that transaction; the next one has another."""
    store = file.store()
    with store.transaction() as transaction:
        own = claimed(transaction)
        effect(transaction)
        transaction.connection.close()
        with pytest.raises(StoreUnavailableError):
            transaction.complete(own, ANSWER, KEY, BODY)
    assert file.effects() == 0
    with store.transaction() as transaction:
        own = claimed(transaction)
        effect(transaction)
        transaction.complete(own, ANSWER, KEY, BODY)
    assert file.effects() == 1


# --- closing ----------------------------------------------------------------------------------------------------------


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
        (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, True, StoreUnavailableError),
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
