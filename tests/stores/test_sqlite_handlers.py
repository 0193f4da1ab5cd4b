"""The connection that a handler gets: everything but the end of the transaction is its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from tests.stores.claims import ANSWER, BODY, HEAD, KEY, wish
from tests.stores.sqlite_file import File, claimed, effect
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.errors import (
    StoreUnavailableError,
)

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
