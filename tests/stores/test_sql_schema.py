"""The tables: made once, by whoever comes first, and told apart by their version."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claimed
from twicesafe.errors import SchemaError
from twicesafe.stores.sql.schema import schema_text, versions
from twicesafe.stores.sql.statements import Dialect
from twicesafe.stores.sqlite import SqliteStore

PROCESSES = 12

APPLY = """
import sys
from twicesafe.stores.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
sys.stdin.read()
store.apply_schema()
store.check_schema()
store.close()
"""


def tables(path: Path) -> list[tuple[str, ...]]:
    """What a file holds, by name and definition."""
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    versions_there = connection.execute("SELECT version FROM twicesafe_schema ORDER BY version").fetchall()
    connection.close()
    return [(name, " ".join((sql or "").split())) for name, sql in found] + versions_there


@pytest.mark.parametrize("dialect", Dialect)
def test_versions_are_numbered_from_one(dialect: Dialect) -> None:
    """R20: each dialect's versions follow each other without a gap, so that every older one leads to this one."""
    assert [version.number for version in versions(dialect)] == list(range(1, len(versions(dialect)) + 1))
    assert all(version.statements() for version in versions(dialect))


def test_many_processes_apply_at_once(tmp_path: Path) -> None:
    """R42, K: of many processes that make the tables of a new file at once, every one finds them made."""
    path = tmp_path / "records.db"
    started = [
        subprocess.Popen([sys.executable, "-c", APPLY, str(path)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    # End of input is the starting signal.
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    for process in started:
        _, complaint = process.communicate(timeout=60)
        assert process.returncode == 0, complaint.decode()
    assert tables(path)[-3:] == [(1,), (2,), (3,)]


def test_applying_twice_changes_nothing(tmp_path: Path) -> None:
    """R20: applying the schema again leaves the tables and every record as they are."""
    path = tmp_path / "records.db"
    store = SqliteStore(path)
    store.apply_schema()
    won = store.claim(wish())
    assert isinstance(won, Claimed)
    store.complete(won.ownership, ANSWER, KEY, BODY)
    before = tables(path), store.read(won.ownership.digest).record
    store.apply_schema()
    assert (tables(path), store.read(won.ownership.digest).record) == before
    store.close()


def test_the_printed_schema_is_the_applied_one(tmp_path: Path) -> None:
    """R20: a script applied by other means leaves what apply_schema leaves."""
    applied, printed = tmp_path / "applied.db", tmp_path / "printed.db"
    store = SqliteStore(applied)
    store.apply_schema()
    store.close()
    connection = sqlite3.connect(printed)
    connection.executescript(schema_text(Dialect.SQLITE))
    connection.close()
    assert tables(printed) == tables(applied)
    store = SqliteStore(printed)
    store.check_schema()
    store.close()


def test_missing_tables_are_named_with_their_remedy(tmp_path: Path) -> None:
    """R42: without its tables a store says which command makes them, asked for it or not."""
    path = tmp_path / "records.db"
    store = SqliteStore(path)
    command = f"twicesafe schema apply --store sqlite:///{path}"
    for call in (store.check_schema, lambda: store.claim(wish()), lambda: store.purge()):
        with pytest.raises(SchemaError) as refused:
            call()
        assert command in str(refused.value)
    store.apply_schema()
    assert isinstance(store.claim(wish()), Claimed)
    store.close()


@pytest.mark.parametrize(("version", "complaint"), [(0, "missing"), (99, "a newer release made")])
def test_tables_of_another_version_are_refused(tmp_path: Path, version: int, complaint: str) -> None:
    """R42: tables of a version that this release does not know are refused by check_schema and left alone by apply."""
    path = tmp_path / "records.db"
    store = SqliteStore(path)
    store.apply_schema()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM twicesafe_schema")
        if version:
            connection.execute("INSERT INTO twicesafe_schema (version, applied_at) VALUES (?, 0)", (version,))
    connection.close()
    with pytest.raises(SchemaError, match=complaint):
        store.check_schema()
    if version:
        before = tables(path)
        store.apply_schema()
        assert tables(path) == before
    store.close()
