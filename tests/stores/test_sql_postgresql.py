"""What the statements make of PostgreSQL: its locks, and its way of updating a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import psycopg
import pytest

from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, KEY, OTHER_REQUEST, REQUEST, digest_of, wish
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.stores.sql.advisory import lock_keys
from twicesafe.stores.sql.leased import SqlSteps
from twicesafe.stores.sql.schema import apply_schema
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.sql.transactional import SqlTransactionSteps
from twicesafe.stores.steps import Batch, Rows, Step, Steps, drive

R = TypeVar("R")

SQL = Queries(Dialect.POSTGRESQL, Placeholder.PERCENT)


class Connection:
    """Performs steps one by one, each statement on its own."""

    def __init__(self, dsn: str) -> None:
        self.driver = psycopg.connect(dsn, autocommit=True)

    def run(self, steps: Steps[R]) -> R:
        """Drive steps to their end."""
        return drive(steps, self.perform)

    def perform(self, step: Step) -> Rows:
        """Send one step."""
        if isinstance(step, Batch):
            return [self.perform(one) for one in step.statements][-1]
        cursor = self.driver.execute(step.text, step.parameters or None)  # type: ignore[call-overload]
        return cursor.fetchall() if step.returns else ()  # type: ignore[no-any-return]

    def ask(self, text: str, *parameters: Any) -> Any:
        """One row."""
        return self.driver.execute(text, parameters).fetchone()  # type: ignore[call-overload]


@pytest.fixture
def two(postgresql_server: PostgresqlServer) -> Iterator[tuple[Connection, Connection]]:
    """Two connections to a fresh database with the tables."""
    dsn = postgresql_server.create_database()
    one, other = Connection(dsn), Connection(dsn)
    one.run(apply_schema(SQL))
    yield one, other
    one.driver.close()
    other.driver.close()


def test_completing_leaves_the_indexes_alone(two: tuple[Connection, Connection]) -> None:
    """R20: a claim that is completed within the minute is a heap-only update, whatever minute it ends in."""
    connection, _ = two
    steps = SqlSteps(SQL)
    for n in range(100):
        found = connection.run(steps.claim(wish(f"key-{n}")))
        assert isinstance(found, Claimed)
        connection.run(steps.complete(found.ownership, ANSWER, KEY, KEY))
    connection.ask("SELECT pg_stat_force_next_flush()")
    updates, hot = connection.ask(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'twicesafe_records'"
    )
    assert updates == 100 == hot


def test_purging_reads_the_index(two: tuple[Connection, Connection]) -> None:
    """R20: a purge finds what has ended by the index, not by reading every record."""
    connection, _ = two
    connection.driver.execute("SET enable_seqscan = off")
    for name in ("purge_keys", "purge_bodies"):
        statement = SQL(name, limit=10)
        plan = connection.driver.execute(f"EXPLAIN {statement.text}", statement.parameters).fetchall()  # type: ignore[call-overload]
        text = "\n".join(line for (line,) in plan)
        assert "twicesafe_records_purge" in text and "Index Cond: (purge_minute <=" in text, text


def rival(connection: Connection, claim: Claim) -> Verdict:
    """What a transactional claim is told."""
    steps = SqlTransactionSteps(SQL)
    found = connection.run(steps.claim(claim))
    assert isinstance(found, Existing) and found.record is None, found
    assert connection.driver.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    return found.verdict


def test_a_rival_is_told_apart_while_nothing_is_visible(two: tuple[Connection, Connection]) -> None:
    """I4, R11: beside a transaction that has written nothing, its own request is in progress and another is refused."""
    runner, other = two
    steps = SqlTransactionSteps(SQL)
    assert isinstance(runner.run(steps.claim(wish())), Claimed)
    assert other.ask("SELECT count(*) FROM twicesafe_records") == (0,)
    assert rival(other, wish()) is Verdict.IN_PROGRESS
    assert rival(other, wish(fingerprint=OTHER_REQUEST)) is Verdict.MISMATCH
    runner.run(steps.roll_back())
    assert isinstance(other.run(SqlTransactionSteps(SQL).claim(wish(fingerprint=OTHER_REQUEST))), Claimed)


def test_a_lock_on_the_key_alone_proves_no_other_request(two: tuple[Connection, Connection]) -> None:
    """I4: when locks go one by one at a transaction's end, a retry in that moment is in progress, not refused."""
    runner, other = two
    keys = lock_keys(digest_of("key"), REQUEST.value)
    runner.ask("SELECT pg_advisory_lock(%s)", keys["digest_int8"])
    assert rival(other, wish()) is Verdict.IN_PROGRESS
    somebody_else = lock_keys(digest_of("other key"), OTHER_REQUEST.value)
    runner.ask("SELECT pg_advisory_lock(%s, %s)", somebody_else["digest_int4"], somebody_else["fingerprint_int4"])
    assert rival(other, wish()) is Verdict.IN_PROGRESS
    another = lock_keys(digest_of("key"), OTHER_REQUEST.value)
    runner.ask("SELECT pg_advisory_lock(%s, %s)", another["digest_int4"], another["fingerprint_int4"])
    assert rival(other, wish()) is Verdict.MISMATCH


def test_what_stands_in_the_row_counts_more_than_a_lock(two: tuple[Connection, Connection]) -> None:
    """I4, I5: while another request looks at a completed key and holds its locks, a true retry is replayed."""
    runner, other = two
    steps = SqlTransactionSteps(SQL)
    found = other.run(steps.claim(wish()))
    assert isinstance(found, Claimed)
    other.run(steps.complete(found.ownership, ANSWER, KEY, KEY, keep_effects=True))
    keys = lock_keys(digest_of("key"), OTHER_REQUEST.value)
    runner.ask("SELECT pg_advisory_lock(%s, %s)", keys["digest_int4"], keys["fingerprint_int4"])
    runner.ask("SELECT pg_advisory_lock(%s)", keys["digest_int8"])
    again = other.run(SqlTransactionSteps(SQL).claim(wish()))
    assert isinstance(again, Existing) and again.verdict is Verdict.REPLAY
    assert again.record is not None and again.record.response == ANSWER


def test_what_is_known_here_is_looked_for_first_and_judged_all_the_same(two: tuple[Connection, Connection]) -> None:
    """I1, I4, R10: to have seen a key settled shortens the way to its record; what the row says by then decides."""
    runner, other = two
    store = SqlSteps(SQL)

    def claimed(claim: Claim, connection: Connection = runner) -> Claimed | Existing:
        return connection.run(SqlTransactionSteps(SQL, store).claim(claim))

    own = runner.run(store.claim(wish()))
    assert isinstance(own, Claimed)
    runner.run(store.complete(own.ownership, ANSWER, KEY, KEY))
    assert digest_of("key") in store.settled_here
    assert runner.driver.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    for claim, verdict in ((wish(), Verdict.REPLAY), (wish(fingerprint=OTHER_REQUEST), Verdict.MISMATCH)):
        found = claimed(claim)
        assert isinstance(found, Existing) and found.verdict is verdict
        assert runner.driver.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    other.driver.execute("UPDATE twicesafe_records SET key_until = 0, body_until = 0")
    again = claimed(wish())
    assert isinstance(again, Claimed) and again.ownership.epoch == 2
    rival = claimed(wish(), other)
    assert isinstance(rival, Existing) and rival.verdict is Verdict.IN_PROGRESS
    runner.driver.execute("ROLLBACK")
    other.driver.execute("DELETE FROM twicesafe_records")
    assert isinstance(claimed(wish()), Claimed)
    runner.driver.execute("ROLLBACK")
    assert isinstance(runner.run(store.claim(wish())), Claimed)
    assert other.ask("SELECT count(*) FROM twicesafe_records") == (1,)


def test_a_snapshot_is_taken_after_the_lock(two: tuple[Connection, Connection]) -> None:
    """K, R10: whatever the database's default isolation, a claim sees what was committed before it had the lock."""
    runner, other = two
    other.driver.execute("SET default_transaction_isolation = 'repeatable read'")
    other.driver.execute("SET default_transaction_read_only = on")
    steps, rivals = SqlTransactionSteps(SQL), SqlTransactionSteps(SQL)
    found = runner.run(steps.claim(wish()))
    assert isinstance(found, Claimed)

    def perform(step: Step) -> Rows:
        if isinstance(step, Batch):
            begin, lock, look = step.statements
            other.perform(begin)
            runner.run(steps.complete(found.ownership, ANSWER, KEY, KEY, keep_effects=True))
            other.perform(lock)
            return other.perform(look)
        return other.perform(step)

    again = drive(rivals.claim(wish()), perform)
    assert isinstance(again, Existing) and again.verdict is Verdict.REPLAY
    assert isinstance(other.run(SqlTransactionSteps(SQL).claim(wish("writable"))), Claimed)
