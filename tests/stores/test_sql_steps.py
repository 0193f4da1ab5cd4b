"""The order of statements, on a real SQLite, with somebody else's statement at the worst place between two."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores.claims import ANSWER, BODY, HEAD, KEY, LEASE, OTHER_REQUEST, digest_of, wish
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Ownership, RecordState
from twicesafe.errors import LeaseLostError, StoreUnavailableError
from twicesafe.stores.packing import pack_headers, unpack_headers
from twicesafe.stores.sql.leased import ROUNDS, SqlSteps
from twicesafe.stores.sql.rows import printable
from twicesafe.stores.sql.schema import apply_schema
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.sql.transactional import SqlTransactionSteps
from twicesafe.stores.steps import Batch, Rows, Statement, Step, Steps, adrive, drive
from twicesafe.testing import ManualClock

R = TypeVar("R")


class Table:
    """The tables in memory, the steps that work on them, and a place to put something between two statements."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sql = Queries(Dialect.SQLITE, Placeholder.QUESTION_MARK)
        self.steps = SqlSteps(self.sql)
        self.sent: list[str] = []
        self.once_before: dict[str, Callable[[], object]] = {}
        """What to do before the next statement of a name, once."""
        self.before: Callable[[str], object] | None = None
        """What to do before each statement."""
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.create_function("twicesafe_now", 0, self.clock)
        self.run(apply_schema(self.sql))
        self.sent.clear()

    def run(self, steps: Steps[R]) -> R:
        """Drive steps to their end."""
        return drive(steps, self.perform)

    def perform(self, step: Step) -> Rows:
        """Send one step, after what was put before it."""
        if isinstance(step, Batch):
            return [self.perform(one) for one in step.statements][-1]
        self.once_before.pop(step.name, lambda: None)()
        before, self.before = self.before, None
        if before is not None:
            before(step.name)
            self.before = before
        self.sent.append(step.name)
        cursor = self._connection.execute(step.text, step.parameters)
        return ((),) * cursor.rowcount if step.writes and not step.returns else cursor.fetchall()

    def won(self, claim: Claim) -> Ownership:
        """Claim and win."""
        found = self.run(self.steps.claim(claim))
        assert isinstance(found, Claimed), found
        return found.ownership

    def row(self, key: str = "key") -> Any:
        """The record as it stands."""
        return self.run(self.steps.read(digest_of(key))).record

    def completed(self, claim: Claim) -> Ownership:
        """Claim and complete."""
        own = self.won(claim)
        self.run(self.steps.complete(own, ANSWER, KEY, BODY))
        return own


@pytest.fixture
def table() -> Iterator[Table]:
    """Fresh tables."""
    made = Table()
    yield made
    made._connection.close()


def past(microseconds: int) -> timedelta:
    """As long as that."""
    return timedelta(microseconds=microseconds)


# --- what may come in between -----------------------------------------------------------------------------------------


def test_a_row_that_appears_before_the_insert_is_met(table: Table) -> None:
    """I1, C1: a rival that inserts between look and insert wins, and the claim is told so without an error."""
    rival = wish()
    table.once_before["claim"] = lambda: table.won(rival)
    found = table.run(table.steps.claim(wish()))
    assert table.row().owner == rival.owner
    assert isinstance(found, Existing) and found.verdict is Verdict.IN_PROGRESS


def test_a_row_that_vanishes_before_it_is_read_is_claimed(table: Table) -> None:
    """C6: a row that was in the way and is gone when it is read starts the claim again, and the claimed row exists."""
    rival = wish()

    def come_and_go() -> None:
        own = table.won(rival)
        table.once_before["find"] = lambda: table.run(table.steps.release(own))

    table.once_before["claim"] = come_and_go
    mine = wish()
    found = table.run(table.steps.claim(mine))
    assert isinstance(found, Claimed) and found.ownership.owner == mine.owner
    assert table.row().owner == mine.owner


def test_an_expired_row_that_is_purged_before_it_is_claimed_is_claimed_anew(table: Table) -> None:
    """C4, C6: purging under a claim of an expired row costs it a round and nothing else."""
    table.completed(wish())
    table.clock.advance(past(KEY))
    table.once_before["claim_expired"] = lambda: table.run(table.steps.purge(10))
    mine = wish()
    found = table.run(table.steps.claim(mine))
    assert isinstance(found, Claimed) and found.ownership == Ownership(mine.digest, mine.owner, 1)
    assert table.row().owner == mine.owner


def test_one_of_two_claims_an_expired_row(table: Table) -> None:
    """C4, I1: of two that found the same expired row, the second finds the first one's claim."""
    table.completed(wish())
    table.clock.advance(past(KEY))
    first = wish()
    table.once_before["claim_expired"] = lambda: table.won(first)
    found = table.run(table.steps.claim(wish()))
    assert table.row().owner == first.owner and table.row().epoch == 2
    assert isinstance(found, Existing) and found.verdict is Verdict.IN_PROGRESS


def test_an_expired_row_is_forgotten_whole(table: Table) -> None:
    """R20, I5: a new claim over an expired row keeps nothing of it but the growth of its epoch."""
    table.completed(wish(request=b"old"))
    table._connection.execute("UPDATE twicesafe_records SET recovery_point = 'p', recovery_data = x'00'")
    table.clock.advance(past(KEY))
    mine = wish(fingerprint=OTHER_REQUEST, effects=Effects.OPAQUE, scope="new", operation="new", key_hint="new")
    own = table.won(mine)
    record = table.row()
    assert own.epoch == 2
    assert (record.response, record.recovery_point, record.recovery_data, record.request) == (None, None, None, None)
    assert (record.scope, record.operation, record.key_hint) == ("new", "new", "new")
    assert (record.fingerprint, record.effects) == (OTHER_REQUEST.value, Effects.OPAQUE)
    assert record.created_at == table.clock() and record.key_until == table.clock() + KEY


def test_a_renewal_in_between_saves_the_owner(table: Table) -> None:
    """I3, I12: an owner that renews after its lease was found over, and before it is taken over, keeps its claim."""
    own = table.won(wish())
    table.clock.advance(past(LEASE))
    table.once_before["take_over"] = lambda: table.run(table.steps.renew(own, LEASE))
    found = table.run(table.steps.claim(wish()))
    assert table.row().ownership == own
    assert isinstance(found, Existing) and found.verdict is Verdict.IN_PROGRESS


@pytest.mark.parametrize("effects", [Effects.KEYED, Effects.OPAQUE])
def test_an_answer_that_begins_in_between_is_settled(table: Table, effects: Effects) -> None:
    """I11, R18: an answer whose head is recorded just before a take-over is done, neither run again nor unknown."""
    own = table.won(wish(effects=effects))
    table.clock.advance(past(LEASE))
    statement = "take_over" if effects is Effects.KEYED else "hold_stale"
    table.once_before[statement] = lambda: table.run(table.steps.start_answer(own, HEAD))
    found = table.run(table.steps.claim(wish()))
    assert table.row().state is RecordState.COMPLETED and table.row().ownership == own
    assert isinstance(found, Existing) and found.verdict is Verdict.GONE
    assert found.record == table.row()


def test_a_completion_in_between_is_replayed(table: Table) -> None:
    """I5, I3: an owner that completes just before a take-over has completed; its rival replays."""
    own = table.won(wish())
    table.clock.advance(past(LEASE))
    table.once_before["take_over"] = lambda: table.run(table.steps.complete(own, ANSWER, KEY, BODY))
    found = table.run(table.steps.claim(wish()))
    assert isinstance(found, Existing) and found.verdict is Verdict.REPLAY
    assert found.record is not None and found.record.response == ANSWER and found.record.ownership == own


def test_a_claim_gives_up_on_a_row_that_never_rests(table: Table) -> None:
    """R12: a row that changes under every round ends the claim with an error that says to ask again."""
    rival: list[Ownership] = []

    def come_or_go(name: str) -> None:
        if name == "claim" and not rival:
            rival.append(table.won(wish()))
        elif name == "find" and rival:
            table.run(table.steps.release(rival.pop()))

    table.before = come_or_go
    with pytest.raises(StoreUnavailableError, match="ask again"):
        table.run(table.steps.claim(wish()))
    assert table.row() is None or table.row().owner == rival[0].owner
    assert table.sent.count("claim") >= ROUNDS


# --- the transactional way --------------------------------------------------------------------------------------------


def test_a_transaction_writes_one_row(table: Table) -> None:
    """R23: a transactional request sends one look and one insert besides its beginning and its commit."""
    steps = SqlTransactionSteps(table.sql)
    found = table.run(steps.claim(wish()))
    assert isinstance(found, Claimed)
    table.run(steps.complete(found.ownership, ANSWER, KEY, BODY, keep_effects=True))
    assert table.sent == ["find", "begin", "look", "record", "commit"]
    assert table.row().response == ANSWER


@pytest.mark.parametrize("change", ["completed", "renewed", "answered", "taken over", "released"])
def test_a_stale_claim_that_moved_on_is_not_overwritten(table: Table, change: str) -> None:
    """I3, R23: a transaction that took over a stale claim commits only if the claim is still as it was seen."""
    own = table.won(wish())
    table.clock.advance(past(LEASE))
    steps = SqlTransactionSteps(table.sql)
    found = table.run(steps.claim(wish()))
    assert isinstance(found, Claimed) and found.ownership.epoch == 2
    meddling: dict[str, Steps[Any]] = {
        "completed": table.steps.complete(own, HEAD, KEY, BODY),
        "renewed": table.steps.renew(own, LEASE),
        "answered": table.steps.start_answer(own, HEAD),
        "taken over": table.steps.claim(wish()),
        "released": table.steps.release(own),
    }
    table.run(meddling[change])
    if change == "released":
        table.run(steps.complete(found.ownership, ANSWER, KEY, BODY, keep_effects=True))
        assert table.row().ownership == found.ownership
    else:
        with pytest.raises(LeaseLostError):
            table.run(steps.complete(found.ownership, ANSWER, KEY, BODY, keep_effects=True))
        assert table.sent[-1] == "rollback"


def test_a_failure_yields_to_whoever_claimed_meanwhile(table: Table) -> None:
    """R15, H2: an answer recorded without its effects goes nowhere, and says so, where a rival's record is there."""
    steps = SqlTransactionSteps(table.sql)
    found = table.run(steps.claim(wish()))
    assert isinstance(found, Claimed)
    rival = wish()
    table.once_before["begin"] = lambda: table.completed(rival)
    with pytest.raises(LeaseLostError):
        table.run(steps.complete(found.ownership, ANSWER._replace(status=422), KEY, BODY, keep_effects=False))
    sent = table.sent[-3:]
    assert table.row().owner == rival.owner and table.row().response == ANSWER
    assert sent == ["look", "record", "rollback"]


def test_a_claimed_transaction_is_not_committed_without_its_answer(table: Table) -> None:
    """I2, R23: commit() is for requests without a key; after a won claim it is refused and commits nothing."""
    steps = SqlTransactionSteps(table.sql)
    assert isinstance(table.run(steps.claim(wish())), Claimed)
    with pytest.raises(RuntimeError, match=r"complete\(\)"):
        table.run(steps.commit())
    assert "commit" not in table.sent
    with pytest.raises(RuntimeError, match="begun already"):
        table.run(steps.begin())


# --- purging ----------------------------------------------------------------------------------------------------------


@given(
    key_seconds=st.integers(1, 400),
    body_seconds=st.integers(0, 400),
    took_seconds=st.integers(0, 200),
    kept=st.booleans(),
    held=st.booleans(),
)
def test_purging_finds_what_has_ended_at_once(
    key_seconds: int, body_seconds: int, took_seconds: int, kept: bool, held: bool
) -> None:
    """R20: whatever the retentions, a purge drops the body and then the row when each has ended, never earlier."""
    table = Table()
    key_us, body_us = key_seconds * 1_000_000, min(key_seconds, body_seconds) * 1_000_000
    own = table.won(wish(key_us=key_us))
    table.clock.advance(timedelta(seconds=took_seconds))
    response = ANSWER if kept else HEAD
    if held:
        table.run(table.steps.hold(own))
        assert table.run(table.steps.settle(own, response, key_us, body_us))
    else:
        table.run(table.steps.complete(own, response, key_us, body_us))
    if kept and body_us < key_us:
        if body_us:
            table.clock.advance(past(body_us - 1))
            assert table.run(table.steps.purge(10)) == 0 and table.row().response == ANSWER
            table.clock.advance(past(1))
        assert table.run(table.steps.purge(10)) == 1 and table.row().response == HEAD
        table.clock.advance(past(key_us - body_us - 1))
    else:
        table.clock.advance(past(key_us - 1))
    assert table.run(table.steps.purge(10)) == 0 and table.row() is not None
    table.clock.advance(past(1))
    assert table.run(table.steps.purge(10)) == 1 and table.row() is None
    table._connection.close()


# --- packing and loops ------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=300))).map(tuple))
def test_header_lines_come_back_line_for_line(lines: tuple[tuple[bytes, bytes], ...]) -> None:
    """R17, D1: packed header lines come back in count, order and bytes, whatever they hold."""
    assert unpack_headers(pack_headers(lines)) == lines


def test_packed_header_lines_are_never_packed_otherwise() -> None:
    """R17: what an older release packed is unpacked by every later one."""
    packed = bytes.fromhex("0003000000027365746131000300000000736574")
    assert unpack_headers(packed) == ((b"set", b"a1"), (b"set", b""))
    assert pack_headers(((b"set", b"a1"), (b"set", b""))) == packed
    assert pack_headers(()) == b"" and unpack_headers(b"") == ()


@given(st.text())
def test_every_name_can_be_kept_by_every_database(name: str) -> None:
    """G5: a caller's or an operation's name, surrogates and NUL included, becomes text that any database takes."""
    kept = printable(name)
    assert "\0" not in kept
    assert kept.encode("utf-8").decode("utf-8") == kept
    if name.isprintable():
        assert kept == name


def test_an_error_ends_the_steps_where_they_stand() -> None:
    """R42: what a statement raises is raised on, and the steps are closed there, sync and async alike."""
    closed: list[int] = []

    def steps(n: int) -> Steps[None]:
        try:
            yield Statement("one", "", (), writes=False, returns=True)
            yield Statement("two", "", (), writes=False, returns=True)
        finally:
            closed.append(n)

    def perform(step: Step) -> Rows:
        assert isinstance(step, Statement)
        if step.name == "two":
            raise StoreUnavailableError(step.name)
        return ()

    async def aperform(step: Step) -> Rows:
        return perform(step)

    with pytest.raises(StoreUnavailableError, match="two"):
        drive(steps(1), perform)
    with pytest.raises(StoreUnavailableError, match="two"):
        asyncio.run(adrive(steps(2), aperform))
    assert closed == [1, 2]


def test_cancellation_ends_the_steps_where_they_stand() -> None:
    """A1: steps whose task is cancelled are closed at the statement that was under way."""
    closed: list[str] = []

    def steps() -> Steps[None]:
        try:
            yield Statement("one", "", (), writes=False, returns=True)
        except GeneratorExit:
            closed.append("one")
            raise

    async def main() -> None:
        reached = asyncio.Event()

        async def perform(_: Step) -> Rows:
            reached.set()
            await asyncio.Event().wait()
            return ()

        task = asyncio.ensure_future(adrive(steps(), perform))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert closed == ["one"]
