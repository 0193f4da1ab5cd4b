"""Operations of several steps: what rivals, cancellations and lost answers must not make of a call."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tests.functions.killing import killed, lease_over
from tests.functions.shop import DeclinedError, K, Shop, UnreachableError
from twicesafe.core.phases import Advance, CommitPhase
from twicesafe.errors import (
    AmbiguousWriteError,
    CallRejectedError,
    CallUnknownError,
    DefinitionChangedError,
    LeaseLostError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from twicesafe.once import NotDone, current
from twicesafe.resuming import Steps


@dataclass
class One:
    number: int


def kept_one(connection: Any) -> One:
    return One(1)


def read_none(connection: Any) -> str:
    raise AssertionError("it was run before")


class Forgetful:
    """A provider that charges for whatever comes, and remembers no keys."""

    def __init__(self, *fails: BaseException | None) -> None:
        self.charges = 0
        self.fails = list(fails)

    def charge(self, key: str) -> str:
        error = self.fails.pop(0) if self.fails else None
        if isinstance(error, UnreachableError):
            raise error
        self.charges += 1
        if error is not None:
            raise error
        return f"ch_{self.charges}"


def pays(shop: Shop, charge: Any, **call: Any) -> Any:
    """An operation of one call."""

    @shop.another().operation(key=lambda: K, effects="resumable", name="pays")
    def op() -> Any:
        return current().call("charge", charge, **call)

    return op


def test_who_lost_the_claim_while_asking_sends_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """I3, R25: finding out took longer than the lease; a rival was quicker, and it is sent once."""
    provider = Forgetful()
    killed(shop, monkeypatch, 5, performed=True)
    asked: list[str] = []

    def look_up(key: str, cents: int) -> NotDone:
        asked.append(key)
        if len(asked) == 1:
            lease_over(shop)
            assert buy(shop.another())(K, 100) == "ch_1 ch_2"
        return NotDone()

    shop.provider.charge = lambda key, cents: provider.charge(key)  # type: ignore[method-assign]

    def buy(once: Any) -> Any:
        return shop.operation(once, look_up=look_up)

    with pytest.raises(LeaseLostError):
        buy(shop.another())(K, 100)
    assert provider.charges == 2


@pytest.mark.parametrize("lost", [True, False], ids=["a rival was quicker", "its own"])
def test_what_a_late_owners_phase_meets_is_no_outcome(shop: Shop, *, lost: bool) -> None:
    """I3, I10: a rival inserted the one row there may be; the late run learns that it lost, not that there is one."""
    with closing(sqlite3.connect(shop.file)) as connection:
        connection.execute("CREATE UNIQUE INDEX one_of_each ON steps (step)")
        connection.commit()
    late = [True]

    def insert(connection: sqlite3.Connection, step: str) -> None:
        connection.execute("INSERT INTO steps VALUES (?)", (step,))

    def op() -> str:
        at = current()
        at.phase("first", insert, "first")
        if late.pop() if late else False:
            if lost:
                lease_over(shop)
                assert operation(shop.another())() == "paid"
            else:
                insert_outside(shop, "second")
        at.phase("second", insert, "second")
        return "paid"

    def operation(once: Any) -> Any:
        return once.operation(key=lambda: K, effects="resumable", name="pays")(op)

    with pytest.raises(LeaseLostError if lost else sqlite3.IntegrityError):
        operation(shop.another())()
    assert shop.rows() == ["first", "second"]
    if lost:
        assert operation(shop.another())() == "paid"


def insert_outside(shop: Shop, step: str) -> None:
    """Somebody who has nothing to do with the operation."""
    with closing(sqlite3.connect(shop.file)) as connection:
        connection.execute("INSERT INTO steps VALUES (?)", (step,))
        connection.commit()


def test_not_sent_this_time_is_not_never_sent(shop: Shop) -> None:
    """R25, K: the first attempt may have charged; that the second did not leave proves nothing of the first."""
    provider = Forgetful(TimeoutError(), UnreachableError())
    for error in (TimeoutError, UnreachableError):
        with pytest.raises(error):
            pays(shop, provider.charge, unsent=(UnreachableError,), remembers=timedelta(minutes=1))()
        shop.clock.advance(timedelta(seconds=1))
    shop.clock.advance(timedelta(minutes=1))
    with pytest.raises((CallUnknownError, OutcomeUnknownError)):
        pays(shop, provider.charge, unsent=(UnreachableError,), remembers=timedelta(minutes=1))()
    assert provider.charges == 1


def test_a_lost_answer_to_the_journal_is_told_apart_from_what_was_there(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I10, R25: a call that is recorded as unsent is recorded as about to be sent before it is, whatever gets lost."""
    provider = Forgetful(UnreachableError(), TimeoutError())
    with pytest.raises(UnreachableError):
        pays(shop, provider.charge, unsent=(UnreachableError,))()
    shop.clock.advance(timedelta(seconds=1))
    perform, lost = Steps._perform, [True]

    def losing(steps: Any, step: Any, *others: Any) -> Any:
        if type(step) is Advance and lost:
            lost.clear()
            raise AmbiguousWriteError("lost")
        return perform(steps, step, *others)

    with monkeypatch.context() as patched:
        patched.setattr(Steps, "_perform", losing)
        with pytest.raises((TimeoutError, AmbiguousWriteError)):
            pays(shop, provider.charge, unsent=(UnreachableError,))()
    shop.clock.advance(timedelta(seconds=1))
    with suppress(CallUnknownError, OutcomeUnknownError, TimeoutError):
        pays(shop, provider.charge, unsent=(UnreachableError,))()
    shop.clock.advance(timedelta(seconds=1))
    with pytest.raises((CallUnknownError, OutcomeUnknownError)):
        pays(shop, provider.charge, unsent=(UnreachableError,))()
    assert provider.charges == 1


def test_a_rejection_of_another_operation_settles_no_call(shop: Shop) -> None:
    """I6, R25: a call whose sending raised CallRejectedError is open, and nothing is taken behind it."""
    provider = Forgetful(CallRejectedError("of an operation inside"))

    @shop.once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> str:
        at = current()
        try:
            at.call("charge", provider.charge)
        except CallRejectedError:
            at.phase("note", lambda connection: None)
        return "failed"

    with pytest.raises(CallRejectedError):
        op()
    shop.clock.advance(timedelta(seconds=1))
    with pytest.raises(CallUnknownError):
        op()
    assert provider.charges == 1


@pytest.mark.parametrize("way", ["repeatable", "nothing_done", "given"])
def test_steps_that_were_taken_are_not_forgotten_for_a_word(shop: Shop, way: str) -> None:
    """R15, I6: what says that it did nothing, after it took steps, takes none of them again."""
    provider = Forgetful()
    ends = [True]

    @shop.once.operation(key=lambda: K, effects="resumable", name="op", repeatable=(DeclinedError,))
    def op() -> Any:
        charged = current().call("charge", provider.charge)
        if ends:
            ends.clear()
            if way != "repeatable":
                current().nothing_done()
            if way != "given":
                raise DeclinedError
        return charged

    try:
        assert op() == "ch_1"
    except DeclinedError:
        assert way != "given"
    shop.clock.advance(timedelta(seconds=1))
    assert op() == "ch_1"
    assert provider.charges == 1


def test_a_phase_that_may_be_committed_is_no_failure_to_be_answered(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6, K: the answer to its commit was lost and the store is away: no answer that hides that is recorded."""
    perform = Steps._perform

    def losing(steps: Any, step: Any, *others: Any) -> Any:
        if type(step).__name__ == "Read":
            raise StoreUnavailableError("away")
        if type(step) is CommitPhase:
            perform(steps, step, *others)
            raise AmbiguousWriteError("lost")
        return None if type(step).__name__ == "Wait" else perform(steps, step, *others)

    @shop.once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> str:
        try:
            current().phase("a", lambda connection: connection.execute("INSERT INTO steps VALUES ('x')") and None)
        except StoreUnavailableError:
            return "nothing was done"
        return "done"

    with monkeypatch.context() as patched:
        patched.setattr(Steps, "_perform", losing)
        with pytest.raises(StoreUnavailableError):
            op()
    shop.clock.advance(timedelta(seconds=1))
    assert op() == "done"
    assert shop.rows() == ["x"]


def test_a_result_that_can_no_longer_be_read_is_a_changed_definition(shop: Shop) -> None:
    """R24: held for a human at once, and not to be passed over by whoever catches it."""
    fails = [True]

    def ends(read: Any) -> Any:
        @shop.another().operation(key=lambda: K, effects="resumable", name="op")
        def op() -> str:
            try:
                current().phase("a", read)
            except DefinitionChangedError:
                return "passed over"
            if fails:
                fails.clear()
                raise RuntimeError("stop here")
            return "done"

        return op

    with pytest.raises(RuntimeError):
        ends(kept_one)()
    shop.clock.advance(timedelta(seconds=1))
    with pytest.raises(DefinitionChangedError):
        ends(read_none)()
    with pytest.raises(OutcomeUnknownError):
        ends(read_none)()


def test_the_key_is_not_there_where_a_worker_has_none(shop: Shop) -> None:
    """R25: a worker has no key; an operation that needs it learns that in its first run, not in a second charge."""

    @shop.once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> str:
        return current().key

    with pytest.raises(LookupError, match="derived_key"):
        op()
    assert shop.once(K + "-2", lambda: current().key) == K + "-2"


@pytest.mark.parametrize("name", ["a\0b", "x" * 1000, "ünï'\"\\"])
def test_a_step_has_any_name(shop: Shop, name: str) -> None:
    """R24: names come from data."""

    @shop.once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> Any:
        current().phase(name, lambda connection: None)
        return current().call(f"{name} 2", lambda key: "sent")

    assert op() == "sent"
