"""Phases on database servers, which end transactions and refuse letters in ways of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from twicesafe.once import Once, current
from twicesafe.stores.urls import open_store

K = "order-77"


@pytest.fixture(params=["postgresql", "mysql"])
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A blocking store, with a table beside it."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql_server").create_database()
    else:
        server = request.getfixturevalue("mariadb_server")
        url = f"mysql://twicesafe@127.0.0.1:{server.port}/{server.create_database()}"
    with closing(open_store(url)) as opened:
        opened.apply_schema()
        yield opened


def execute(connection: Any, sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if sql.startswith("SELECT") else None


def test_a_phase_whose_transaction_is_over_is_not_done(store: Any) -> None:
    """R24, I10: what was rolled back under the phase, as a deadlock does, is not lost: the point has not moved."""
    once = Once(store, scope="s", observer=lambda event: None)
    runs: list[int] = []

    def prepare(connection: Any) -> None:
        execute(connection, "CREATE TABLE steps (step varchar(20))")

    def write(connection: Any) -> None:
        runs.append(1)
        execute(connection, "INSERT INTO steps VALUES ('first')")
        if len(runs) == 1:
            execute(connection, "ROLLBACK")
        execute(connection, "INSERT INTO steps VALUES ('second')")

    @once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> Any:
        return current().phase("write", write)

    with store.transaction() as transaction:
        transaction.begin()
        prepare(transaction.connection)
        execute(transaction.connection, "COMMIT")
    with pytest.raises(RuntimeError, match="the handler ended"):
        op()
    op()
    with store.transaction() as transaction:
        transaction.begin()
        steps = [step for (step,) in execute(transaction.connection, "SELECT step FROM steps")]
    assert steps.count("first") == 1
    assert len(runs) == 2


@pytest.mark.parametrize("name", ["a\0b", "ünï " * 100])
def test_a_step_has_any_name_in_any_database(store: Any, name: str) -> None:
    """R24: names come from data, and may hold what a database keeps in no text."""
    once = Once(store, scope="s", observer=lambda event: None)

    @once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> Any:
        current().phase(name, lambda connection: None)
        return current().call(f"{name} 2", lambda key: "sent")

    assert op() == op() == "sent"


def test_a_call_that_is_sent_again_is_written_down_again(store: Any) -> None:
    """I3, R25: a write that changes nothing proves the claim all the same."""
    once = Once(store, scope="s", observer=lambda event: None)
    keys: list[str] = []

    def charge(key: str) -> str:
        keys.append(key)
        if len(keys) == 1:
            raise TimeoutError
        return "ch_1"

    @once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> Any:
        return current().call("charge", charge, remembers=once._policy.key_retention)

    with pytest.raises(TimeoutError):
        op()
    assert op() == "ch_1"
    assert len(keys) == 2
    assert len(set(keys)) == 1
