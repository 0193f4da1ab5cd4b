"""Plain functions: each happens once per key, and its callers get one result."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.functions.ways import Ledger, Receipt, Way, done
from twicesafe.core.policy import Policy
from twicesafe.errors import (
    FailedBeforeError,
    InProgressError,
    InvalidKeyError,
    KeyReusedError,
    OutcomeUnknownError,
)
from twicesafe.once import current

K = "sub_123:2026-10"
KEYED = Policy(effects="keyed")  # type: ignore[arg-type]


# --- one run, one result ---------------------------------------------------------------------------------------------


def test_a_second_call_gives_what_the_first_gave(way: Way, ledger: Ledger) -> None:
    """R32, A6: one charge, and the same value of the same type to every caller."""
    first = way.call(K, ledger.charge, "ann", 4200)
    again = way.call(K, ledger.charge, "ann", 4200)
    assert ledger.rows == [("ann", 4200)]
    assert first == again == Receipt("ch_1", Decimal("42.0"))
    assert type(again) is Receipt


@pytest.mark.parametrize(
    "value",
    [
        None, 0, False, "", {}, [], (), 0.0, b"", "None", Decimal("1.10"), datetime(2026, 1, 1, tzinfo=UTC),
        date(2026, 1, 1), UUID(int=1), {1, 2}, timedelta(0),
    ],
    ids=repr,
)  # fmt: skip
def test_every_value_is_a_result(way: Way, value: Any) -> None:
    """D6, A6: what is falsy is a result too, and keeps its type."""
    runs = []

    def work() -> Any:
        runs.append(1)
        return value

    first, again = way.call(K, work), way.call(K, work)
    assert len(runs) == 1
    assert first == again == value
    assert type(again) is type(value)


def test_a_key_names_one_intent(way: Way, ledger: Ledger) -> None:
    """R1: equal arguments under two keys are two charges."""
    way.call(K, ledger.charge, "ann")
    way.call("sub_123:2026-11", ledger.charge, "ann")
    assert len(ledger.rows) == 2


def test_arguments_are_compared_as_the_function_takes_them(way: Way, ledger: Ledger) -> None:
    """R8: by position or by name, a default given or left out: one request."""
    way.call(K, ledger.charge, "ann")
    for repeat in (
        way.call(K, ledger.charge, "ann", 100),
        way.call(K, ledger.charge, customer="ann"),
        way.call(K, ledger.charge, cents=100, customer="ann"),
    ):
        assert repeat.id == "ch_1"
    assert len(ledger.rows) == 1


def test_other_arguments_and_other_functions_are_refused(way: Way, ledger: Ledger) -> None:
    """I4, F6, R7: whatever the key named first stays its meaning, and the right retry still gets its result."""
    way.call(K, ledger.charge, "ann", 100)
    for arguments in (("ann", 101), ("bob", 100), ("ann", Decimal(100)), ("ann", "100"), ("ann", True)):
        with pytest.raises(KeyReusedError):
            way.call(K, ledger.charge, *arguments)
    with pytest.raises(KeyReusedError):
        way.call(K, lambda customer, cents: None, "ann", 100)
    assert ledger.rows == [("ann", 100)]
    assert way.call(K, ledger.charge, "ann", 100).id == "ch_1"


def test_callers_in_other_scopes_share_nothing(way: Way, ledger: Ledger) -> None:
    """I7, G1: one key of two tenants names two intents."""
    way.call(K, ledger.charge, "ann")
    way.once = way.once.within("another tenant")
    assert way.call(K, ledger.charge, "ann").id == "ch_2"
    assert len(ledger.rows) == 2


@pytest.mark.parametrize("key", [None, "", 0, " ", "é", "a\n", "x" * 256, b"k"])
def test_what_is_no_key_runs_nothing(way: Way, ledger: Ledger, key: Any) -> None:
    """G6, G5: a missing or empty key is an error, never one key for everybody."""
    for _ in range(3):
        with pytest.raises(InvalidKeyError):
            way.call(key, ledger.charge, "ann")
    assert ledger.rows == []


# --- while it runs, and after it broke off ---------------------------------------------------------------------------


def test_a_duplicate_is_told_that_it_is_running(way: Way, ledger: Ledger) -> None:
    """I1, R11, F8: the rival is refused, one with other arguments as a mismatch, and neither touches the first."""
    told: list[Any] = []

    def work(customer: str) -> Receipt:
        for other in (customer, "bob"):
            try:
                outside(way, K, work, other)
            except Exception as error:
                told.append(type(error))
        return ledger.charge(customer)

    assert way.call(K, work, "ann").id == "ch_1"
    assert told == [InProgressError, KeyReusedError]
    assert len(ledger.rows) == 1
    assert way.call(K, work, "ann").id == "ch_1"


def outside(way: Way, *arguments: Any) -> Any:
    """A call of somebody else's, on a thread of its own, and what comes of it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(way.call, *arguments).result(timeout=30)


def abandoned(way: Way, policy: Policy, function: Any, *arguments: Any) -> None:
    """A run that was killed: its claim is left, and its lease is over."""
    once = way.make(policy)
    contract = once._contract(way.own(function), None, policy, (), ())
    way.records.claim(once._claim(contract, K, "jobs", arguments, {}))
    way.clock.advance(policy.lease)


def test_opaque_work_that_was_killed_is_never_run_again(way: Way, ledger: Ledger) -> None:
    """I6, A7, B5, R13: nobody knows whether it charged, so every retry is told that, and none runs."""
    abandoned(way, Policy(), ledger.charge, "ann")
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            way.call(K, ledger.charge, "ann")
    assert ledger.rows == []


def test_keyed_work_that_was_killed_runs_again(way: Way, ledger: Ledger) -> None:
    """R13, B1, B5: once the lease is over, not when the retention is."""
    abandoned(way, KEYED, ledger.charge, "ann")
    way.once = way.make(KEYED)
    assert way.call(K, ledger.charge, "ann").id == "ch_1"
    assert len(ledger.rows) == 1


def test_a_late_owner_gets_the_result_of_the_one_who_took_over(way: Way, ledger: Ledger) -> None:
    """I3, B4: the slow run's result is not recorded over the rival's; one result for all."""
    way.once = way.make(KEYED)
    slow: list[bool] = [True]

    def work() -> Receipt:
        if slow:
            slow.clear()
            way.clock.advance(KEYED.lease)
            outside(way, K, work)
        return ledger.charge("ann")

    assert way.call(K, work).id == "ch_1", "the rival's, which was recorded"
    assert way.call(K, work).id == "ch_1"
    assert len(ledger.rows) == 2, "keyed work is run again, under the same derived keys"


# --- what it raises --------------------------------------------------------------------------------------------------


class DeclinedError(Exception):
    """Raised by functions."""


def failing(ledger: Ledger, error: BaseException) -> Any:
    def work(customer: str) -> Receipt:
        ledger.charge(customer)
        raise error

    return work


def test_the_exception_of_opaque_work_is_its_result(way: Way, ledger: Ledger) -> None:
    """R16, B5: it charged and raised; it is not run again, and every retry is told so."""
    work = failing(ledger, DeclinedError("card 4242-4242-4242-4242"))
    with pytest.raises(DeclinedError):
        way.call(K, work, "ann")
    for _ in range(2):
        with pytest.raises(FailedBeforeError) as caught:
            way.call(K, work, "ann")
        assert "4242-4242-4242-4242" not in str(caught.value)
    assert len(ledger.rows) == 1


def test_by_choice_it_is_an_unknown_outcome(way: Way, ledger: Ledger) -> None:
    """R16, I6: where somebody settles unknown outcomes, an exception is one."""
    way.once = way.make(Policy(unknown_on_error=True))
    work = failing(ledger, DeclinedError())
    with pytest.raises(DeclinedError):
        way.call(K, work, "ann")
    with pytest.raises(OutcomeUnknownError):
        way.call(K, work, "ann")
    assert len(ledger.rows) == 1


def test_keyed_work_that_raised_runs_again(way: Way, ledger: Ledger) -> None:
    """R13, R16, B7: at once, under the same derived keys."""
    way.once = way.make(KEYED)
    keys: list[str] = []

    def work() -> int:
        keys.append(current().derived_key("charge"))
        if len(keys) == 1:
            raise DeclinedError
        return len(keys)

    with pytest.raises(DeclinedError):
        way.call(K, work)
    way.clock.advance(timedelta(microseconds=1))
    assert way.call(K, work) == way.call(K, work) == 2
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_an_exception_that_says_that_nothing_was_done_frees_the_key(way: Way, ledger: Ledger) -> None:
    """R15, E3: declared once, for every call."""
    runs: list[int] = []

    @way.once.operation(key=lambda customer: K, repeatable=(DeclinedError,))
    def limited(customer: str) -> Receipt:
        runs.append(1)
        if len(runs) == 1:
            raise DeclinedError
        return ledger.charge(customer) if not way.asynchronous else done(ledger.charge(customer))  # type: ignore[return-value]

    with pytest.raises(DeclinedError):
        way.end(limited("ann"))
    assert way.end(limited("ann")).id == way.end(limited("ann")).id == "ch_1"
    assert len(runs) == 2


def test_a_function_may_say_itself_that_it_did_nothing(way: Way) -> None:
    """R15: whatever it gives is given, and nothing is recorded."""
    runs: list[int] = []

    def work() -> int:
        runs.append(1)
        if len(runs) == 1:
            current().nothing_done()
        return len(runs)

    assert [way.call(K, work) for _ in range(3)] == [1, 2, 2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_work_that_is_torn_out_is_an_unknown_outcome(ledger: Ledger, error: type[BaseException]) -> None:
    """B7, I6: what ends the process ends no claim as if nothing had happened."""
    way = Way()
    work = failing(ledger, error())
    with pytest.raises(error):
        way.call(K, work, "ann")
    with pytest.raises(OutcomeUnknownError):
        way.call(K, work, "ann")
    assert len(ledger.rows) == 1
