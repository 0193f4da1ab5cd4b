"""The file of an IntentStore: a SQLite database that several processes and threads use at once.

Each piece of work is one short transaction on a connection of its own: nothing is shared between threads or inherited
by a fork, and there is nothing to close. WAL, so that readers and the writer do not wait for each other;
synchronous=FULL, so that a key is on disk before the first byte that carries it leaves (I8).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from twicesafe.core.record import Instant, Micros
from twicesafe.core.runs import Run, Verdict
from twicesafe.errors import ConfigurationError, IntentStoreError

T = TypeVar("T")

APPLICATION: Final = 0x74775349
"""SQLite's application_id of these files."""

LAYOUT: Final = 2
"""SQLite's user_version of them. A release that changes the layout counts on, and says how an older one is read."""

PAUSE: Final = 0.002
"""Seconds between two tries for the write lock. SQLite's own waiting sleeps up to 0.1 s and so loses to newcomers."""

_LAID_OUT: Final = (
    """CREATE TABLE intents (
        name TEXT NOT NULL PRIMARY KEY,
        key_digest BLOB NOT NULL UNIQUE,
        key_hint TEXT NOT NULL,
        contract TEXT NOT NULL,
        header TEXT NOT NULL,
        member TEXT NOT NULL,
        withheld TEXT NOT NULL,
        remembers_us INTEGER,
        reserved_at INTEGER NOT NULL,
        settled_at INTEGER,
        sealed INTEGER NOT NULL,
        content BLOB NOT NULL)""",
    "CREATE INDEX intents_outstanding ON intents (name) WHERE settled_at IS NULL",
    """CREATE TABLE runs (
        run INTEGER PRIMARY KEY,
        intent TEXT NOT NULL REFERENCES intents (name) ON DELETE CASCADE,
        began_at INTEGER NOT NULL,
        process INTEGER NOT NULL,
        verdict TEXT NOT NULL,
        ended_at INTEGER,
        attempts INTEGER NOT NULL,
        status INTEGER,
        reason TEXT NOT NULL)""",
    "CREATE INDEX runs_of ON runs (intent)",
    "CREATE TABLE clock (mark INTEGER NOT NULL, before INTEGER NOT NULL, since INTEGER NOT NULL)",
    "INSERT INTO clock VALUES (0, 0, 0)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {LAYOUT}",
)

_FROM_LAYOUT_1: Final = (
    "CREATE TABLE clock (mark INTEGER NOT NULL, before INTEGER NOT NULL, since INTEGER NOT NULL)",
    """INSERT INTO clock SELECT coalesce(max(at), 0), 0, 0 FROM (
        SELECT max(reserved_at, coalesce(settled_at, 0)) AS at FROM intents
        UNION ALL SELECT max(began_at, coalesce(ended_at, 0)) FROM runs)""",
    f"PRAGMA user_version = {LAYOUT}",
)

_MEANINGS: Final = {
    sqlite3.SQLITE_NOTADB: "is no file of intents: it is another kind of file, or damaged. It was left as it is",
    sqlite3.SQLITE_CORRUPT: "is damaged. Keep it: what it holds may have been sent. `sqlite3 FILE .recover` saves "
    "what is readable",
    sqlite3.SQLITE_READONLY: "cannot be written by this account: make it, and the folder it is in, writable",
    sqlite3.SQLITE_PERM: "cannot be opened by this account",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: it is gone, or it and its folder are out of this account's reach",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk, or its file system, fails",
}

_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)
"""Somebody else is at it. Turning WAL on for the first time, and recovering after a crash, are done by one alone."""


class Kept(NamedTuple):
    """A row of an intent."""

    name: str
    key_digest: bytes
    key_hint: str
    contract: str
    header: str
    member: str
    withheld: str
    remembers_us: Micros | None
    reserved_at: Instant
    settled_at: Instant | None
    sealed: int
    content: bytes


class IntentFile:
    """The file, made where there is none. IntentStoreError, which names it, where it cannot be used."""

    def __init__(self, path: str | os.PathLike[str], busy_timeout: timedelta) -> None:
        name = os.fspath(path)
        if not name or name == ":memory:" or name.startswith("file:"):
            raise ConfigurationError(f"an intent that outlives its process needs the path of a file, not {name!r}")
        if busy_timeout < timedelta(0):
            raise ConfigurationError(f"busy_timeout must be a timedelta of at least 0, not {busy_timeout!r}")
        # A later chdir must not lead to another file.
        self.path: Final = Path(name).absolute()
        self._busy: Final = busy_timeout.total_seconds()
        try:
            self._make()
        except OSError as error:
            raise self._failed(f"cannot be made or opened: {error.strerror}") from error
        self.perform(_nothing, writes=True)

    def perform(self, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
        """Do `work` in a transaction. It may be done again, where another process was at the file in between."""
        deadline = time.monotonic() + self._busy
        while True:
            try:
                with closing(self._connect()) as connection:
                    connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                    try:
                        done = work(connection)
                        connection.execute("COMMIT")
                    except BaseException:
                        with suppress(sqlite3.Error):
                            connection.execute("ROLLBACK")
                        raise
                    return done
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", -1)
                # Of a code of SQLite's the lowest byte says what, the others where.
                meant = code & 0xFF if code >= 0 else code
                if meant in _LOCKED and time.monotonic() < deadline:
                    time.sleep(PAUSE)
                    continue
                raise self._refused(meant, error) from error
            except UnicodeEncodeError as error:
                # A command line has halves of characters for bytes that are no text.
                raise ConfigurationError("names and reasons have to be text, of whole characters") from error
            except ValueError as error:
                raise self._failed("holds what this release does not know. It was left as it is") from error

    def _make(self) -> None:
        missing = [folder for folder in (self.path.parent, *self.path.parent.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            mode = self.path.stat().st_mode
            if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
                raise self._failed(f"is open to others: chmod 600 {self.path}") from None
            return
        if os.name == "posix":
            # A file whose folder is not on disk is not on disk.
            opened = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)

    def _connect(self) -> sqlite3.Connection:
        # Never made anew where somebody took it away: what it held may have been sent.
        connection = sqlite3.connect(f"{self.path.as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)
        try:
            # At one moment: another process may be making it.
            connection.execute("BEGIN")
            ours = self._is_ours(connection)
            connection.execute("COMMIT")
            if not ours:
                self._adopt(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            # What is forgotten is not to be found on the disk.
            connection.execute("PRAGMA secure_delete = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """False for one with nothing in it, or of an earlier layout. IntentStoreError for one that is another's."""
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if (application, layout) == (APPLICATION, LAYOUT):
            return True
        if (application, layout) == (APPLICATION, 1):
            return False
        if application == APPLICATION:
            raise self._failed(
                f"was written by a newer release of twicesafe (layout {layout}, this one knows {LAYOUT}): upgrade"
            )
        if application or layout or tables:
            raise self._failed("is a database of something else, not of intents. It was left as it is")
        return False

    def _adopt(self, connection: sqlite3.Connection) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise self._failed(f"cannot be put into WAL mode (it stays {mode!r}): keep it on a local file system")
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have been quicker.
        if not self._is_ours(connection):
            (layout,) = connection.execute("PRAGMA user_version").fetchone()
            for statement in _FROM_LAYOUT_1 if layout else _LAID_OUT:
                connection.execute(statement)
        connection.execute("COMMIT")

    def _refused(self, code: int, error: sqlite3.Error) -> IntentStoreError:
        if code in _LOCKED:
            return self._failed(f"stayed locked by another process for {self._busy:g} s: nothing was changed")
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return self._failed(f"{_MEANINGS.get(code, 'is not as this release made it')} ({name})")

    def _failed(self, what: str) -> IntentStoreError:
        return IntentStoreError(f"{self.path} {what}")


def _nothing(connection: sqlite3.Connection) -> None:
    """Opening it is all."""
    connection.execute("SELECT 1 FROM runs")


# --- rows: what they hold is in the order of the tables --------------------------------------------------------------


def find(connection: sqlite3.Connection, name: str) -> Kept | None:
    """The intent of this name."""
    row = connection.execute("SELECT * FROM intents WHERE name = ?", (name,)).fetchone()
    return None if row is None else Kept(*row)


def find_key(connection: sqlite3.Connection, key_digest: bytes) -> Kept | None:
    """The intent with the key of this digest."""
    row = connection.execute("SELECT * FROM intents WHERE key_digest = ?", (key_digest,)).fetchone()
    return None if row is None else Kept(*row)


def page(connection: sqlite3.Connection, after: str, limit: int, *, settled: bool) -> list[Kept]:
    """Intents in the order of their names, their content left out; those that are settled only if asked for."""
    names = connection.execute(
        "SELECT name, key_digest, key_hint, contract, header, member, withheld, remembers_us, reserved_at, settled_at, "
        "sealed, x'' FROM intents WHERE name > ? AND (? OR settled_at IS NULL) ORDER BY name LIMIT ?",
        (after, settled, limit),
    )
    return [Kept(*row) for row in names]


def insert(connection: sqlite3.Connection, kept: Kept) -> None:
    """Reserve it."""
    connection.execute("INSERT INTO intents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", kept)


def shorten(connection: sqlite3.Connection, name: str, remembers_us: Micros | None) -> None:
    """Note for how long the server knows the key."""
    connection.execute("UPDATE intents SET remembers_us = ? WHERE name = ?", (remembers_us, name))


def settle(connection: sqlite3.Connection, name: str, at: Instant) -> None:
    """Note that what became of it is known; the first time counts."""
    connection.execute("UPDATE intents SET settled_at = coalesce(settled_at, ?) WHERE name = ?", (at, name))


def delete(connection: sqlite3.Connection, name: str) -> None:
    """Forget it, and its runs."""
    connection.execute("DELETE FROM intents WHERE name = ?", (name,))


def runs_of(connection: sqlite3.Connection, name: str) -> dict[int, Run]:
    """Its runs by their numbers, the first one first."""
    rows = connection.execute("SELECT * FROM runs WHERE intent = ? ORDER BY run", (name,))
    return {
        number: Run(began_at, process, Verdict(verdict), *rest) for number, _, began_at, process, verdict, *rest in rows
    }


def add_run(connection: sqlite3.Connection, name: str, run: Run) -> int:
    """The number of the new run. A number of before the clock was set back is never used again."""
    (number,) = connection.execute(
        "SELECT 1 + max(before, coalesce((SELECT max(run) FROM runs), 0)) FROM clock"
    ).fetchone()
    connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (number, name, *run))
    assert isinstance(number, int)
    return number


def end_run(connection: sqlite3.Connection, number: int, run: Run) -> None:
    """Note what became of a run."""
    connection.execute(
        "UPDATE runs SET verdict = ?, ended_at = ?, attempts = ?, status = ?, reason = ? WHERE run = ?",
        (run.verdict, run.ended_at, run.attempts, run.status, run.reason, number),
    )
