"""The storm with an outbox, small: each payment leaves an event, and relays and the consumer break as well."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.running import twicesafe, twicesafe_within
from tests.storm.test_storm import KEYS
from twicesafe.outbox import Outbox
from twicesafe.stores.sqlite import SqliteStore

INTENTS = 40


def test_one_payment_and_one_event_for_each_intent(tmp_path: Path) -> None:
    """I9, R28, R29, R42: servers, relays and the consumer are killed, and acknowledgements get lost; each intent leaves
    one row in the ledger, one message in the outbox, and one row at the consumer."""
    file = tmp_path / "storm.db"
    ran = twicesafe(
        *("storm", "--with-outbox", "--store", f"sqlite:///{file}", "--intents", str(INTENTS), "--clients", "30"),
        *("--servers", "2", "--seed", "7", "--json"),
    )
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT intent, count(*) FROM storm_payments GROUP BY intent").fetchall()
        assert sorted(rows) == [(intent, 1) for intent in range(INTENTS)]
        messages = connection.execute("SELECT state, count(*), count(DISTINCT subject) FROM twicesafe_outbox")
        assert messages.fetchall() == [("delivered", INTENTS, INTENTS)]
    report = ran.json
    # What the consumer did is a ledger of the same book: it has the same numbers once each, or one of these is not 0.
    assert (report["effects"], report["duplicates"], report["lost"]) == (INTENTS, 0, 0)
    assert (report["unknown"], report["stuck"], ran.status) == (0, 0, 0)
    assert f"which acted on {INTENTS}" in ran.err
    assert list(report) == KEYS
    faults = report["faults"]
    assert faults["sigkill_relay"] >= 2
    assert faults["sigkill_consumer"] >= 2
    assert sum(count for kind, count in faults.items() if kind.startswith("delivery_")) >= 1


def test_without_an_outbox_and_an_inbox_events_differ_from_payments() -> None:
    """I9, R42: the same plan, where events are sent after the commit and consumed as they come: the storm can fail."""
    ran = twicesafe(
        *("storm", "--with-outbox", "--naive", "--intents", "20", "--clients", "20", "--servers", "2"),
        *("--seed", "7", "--json"),
    )
    report = ran.json
    assert report["duplicates"] > report["effects"] - 20
    assert ran.status == 1


def test_on_redis_there_is_no_outbox() -> None:
    """R28: a store without transactions is refused in one line, status 2, and nothing is started."""
    ran = twicesafe_within("storm", "--with-outbox", "--store", "redis")
    assert ran.status == 2
    assert "transactions" in ran.err


def test_messages_of_somebody_elses_are_left_alone(tmp_path: Path) -> None:
    """R28, R42: relays of the storm would take what waits in an outbox; where anything does, the storm is not run."""
    file = tmp_path / "shop.db"
    with closing(SqliteStore(file)) as store:
        store.apply_schema()
    with closing(sqlite3.connect(file)) as connection:
        Outbox("/shop").add(connection, "order.placed", ("order", "o-1"), {})
        connection.commit()
        ran = twicesafe_within("storm", "--with-outbox", "--store", f"sqlite:///{file}", "--json")
        assert connection.execute("SELECT state FROM twicesafe_outbox").fetchall() == [("pending",)]
    assert (ran.status, ran.out) == (2, "")
    assert "a database of its own" in ran.err
