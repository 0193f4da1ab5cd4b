"""The connection that a handler gets: everything but the end of the transaction is its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from tests.stores.claims import ANSWER, BODY, HEAD, KEY, wish
from tests.stores.sqlite_file import File, claimed, effect
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.errors import CommitRefusedError, LeaseLostError, StoreUnavailableError
from twicesafe.stores.sqlite_connection import SqliteConnection
from twicesafe.stores.steps import Rows, Statement

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


LOSSES = {
    "or rollback": "INSERT OR ROLLBACK INTO seen VALUES (1)",
    "on conflict rollback": "INSERT INTO strict VALUES (1)",
    "raise(rollback)": "INSERT INTO raising VALUES (1)",
}
INSERT = "INSERT INTO ledger (name) VALUES ('key')"
NEXT: dict[str, Callable[[sqlite3.Connection, sqlite3.Cursor], object]] = {
    "cached": lambda connection, cursor: connection.execute(INSERT),
    "cursor": lambda connection, cursor: cursor.execute(INSERT),
    "new cursor": lambda connection, cursor: connection.cursor().execute(INSERT),
    "raw cursor": lambda connection, cursor: sqlite3.Cursor(connection).execute(INSERT + " -- prepared anew"),
    "executemany": lambda connection, cursor: cursor.executemany("INSERT INTO ledger (name) VALUES (?)", [("key",)]),
    "executemany at once": lambda connection, cursor: connection.executemany(INSERT + " -- ?", [()]),
    "executescript at once": lambda connection, cursor: connection.executescript(INSERT),
    "executescript": lambda connection, cursor: cursor.executescript(INSERT),
    "BEGIN": lambda connection, cursor: connection.execute("BEGIN IMMEDIATE"),
    "SAVEPOINT": lambda connection, cursor: connection.execute("SAVEPOINT mine"),
    "read": lambda connection, cursor: connection.execute("SELECT 1"),
    "blob": lambda connection, cursor: connection.blobopen("blobs", "data", 1),
}


def _prepare_losses(file: File) -> None:
    file.plain.executescript(
        """
        CREATE TABLE seen (x UNIQUE); INSERT INTO seen VALUES (1);
        CREATE TABLE strict (x UNIQUE ON CONFLICT ROLLBACK); INSERT INTO strict VALUES (1);
        CREATE TABLE raising (x);
        CREATE TRIGGER never BEFORE INSERT ON raising BEGIN SELECT RAISE(ROLLBACK, 'never'); END;
        CREATE TABLE blobs (data); INSERT INTO blobs VALUES (zeroblob(9));
        """
    )


@pytest.mark.parametrize("going_on", NEXT)
@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_is_done_after_sqlite_rolled_back(file: File, loss: str, going_on: str) -> None:
    """R23, H2: where SQLite itself ends a transaction and its handler goes on, nothing commits by itself."""
    _prepare_losses(file)
    store = file.store()
    for _ in range(2):
        with store.transaction() as transaction:
            own = claimed(transaction)
            connection = transaction.connection
            cursor = connection.cursor()
            connection.execute(INSERT)
            with pytest.raises(sqlite3.Error):
                connection.execute(LOSSES[loss])
            with pytest.raises(sqlite3.DatabaseError):
                NEXT[going_on](connection, cursor)
            assert not connection.in_transaction
            assert file.effects() == 0
            with pytest.raises(StoreUnavailableError, match="rolled the transaction back by itself"):
                transaction.complete(own, ANSWER, KEY, BODY)
        assert (file.effects(), file.records()) == (0, 0)
    with store.transaction() as transaction:
        own = claimed(transaction)
        effect(transaction)
        transaction.complete(own, ANSWER, KEY, BODY)
    assert (file.effects(), file.records()) == (1, 1)


@pytest.mark.parametrize("isolation", ["DEFERRED", "IMMEDIATE"])
def test_a_handlers_isolation_level_begins_nothing(file: File, isolation: str) -> None:
    """R23: a handler that lets sqlite3 begin transactions by itself gets no second one after the first was lost."""
    _prepare_losses(file)
    with file.store().transaction() as transaction:
        own = claimed(transaction)
        connection = transaction.connection
        connection.isolation_level = isolation
        connection.execute(INSERT)
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(LOSSES["or rollback"])
        with pytest.raises(sqlite3.DatabaseError):
            sqlite3.Cursor(connection).execute(INSERT)
        assert not connection.in_transaction
        with pytest.raises(StoreUnavailableError, match="nothing was changed"):
            transaction.complete(own, ANSWER, KEY, BODY)
    assert (file.effects(), file.records()) == (0, 0)


def test_only_the_stores_cursors_in_a_transaction(file: File) -> None:
    """R23: a cursor that could not refuse what comes after a rollback is refused itself, and nothing was done."""
    with file.store().transaction() as transaction:
        claimed(transaction)
        with pytest.raises(sqlite3.NotSupportedError):
            transaction.connection.cursor(sqlite3.Cursor)
        assert transaction.connection.in_transaction
    assert file.effects() == 0


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
        with pytest.raises(CommitRefusedError):
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


@pytest.mark.parametrize("kept", [True, False])
def test_a_failure_gives_way_to_a_rival_that_ran_after_its_rollback(
    file: File, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    """I1, H2: where a rival ran between a failure's rollback and its record, the failure is not the answer."""
    first, second = file.store(), file.store()
    once = SqliteConnection.once
    told: list[object] = []

    def rival_after_rollback(connection: SqliteConnection, statement: Statement) -> Rows:
        rows = once(connection, statement)
        if statement.name == "rollback" and not told:
            told.append("rival")
            with second.transaction() as rival:
                own = claimed(rival)
                effect(rival)
                rival.complete(own, HEAD, KEY, BODY, keep_effects=kept)
        return rows

    with first.transaction() as transaction:
        own = claimed(transaction)
        effect(transaction)
        monkeypatch.setattr(SqliteConnection, "once", rival_after_rollback)
        with pytest.raises(LeaseLostError):
            transaction.complete(own, ANSWER._replace(status=402), KEY, BODY, keep_effects=False)
    assert (file.effects(), file.records()) == (1 if kept else 0, 1)
    assert told == ["rival"]
    found = first.read(own.digest).record
    assert found is not None and found.response == HEAD
