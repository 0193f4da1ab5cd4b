"""Plain functions: what cannot be kept, or cannot be run once, is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.functions.ways import AsyncWay, Ledger, Receipt, Way, done
from twicesafe.core.policy import Policy
from twicesafe.errors import (
    ConfigurationError,
    FailedBeforeError,
    ResultNotKeptError,
    StoreUnavailableError,
    ValueNotKeptError,
)
from twicesafe.once import current

K = "sub_123:2026-10"
KEYED = Policy(effects="keyed")  # type: ignore[arg-type]


# --- what cannot be kept ---------------------------------------------------------------------------------------------


def test_an_annotation_that_cannot_be_kept_is_refused_before_the_work(way: Way) -> None:
    """A6: refused where it is declared."""
    runs: list[int] = []

    def work() -> complex:
        runs.append(1)
        return 1j

    with pytest.raises(ConfigurationError, match="complex"):
        way.call(K, work)
    assert runs == []


def test_a_result_that_turns_out_not_to_be_kept_is_not_made_again(way: Way) -> None:
    """A6: the first caller gets it, the retry is told that it is done, and the work is never done again."""
    runs: list[int] = []

    def work() -> Any:
        runs.append(1)
        return object()

    assert type(way.call(K, work)) is object
    for _ in range(2):
        with pytest.raises(ResultNotKeptError):
            way.call(K, work)
    assert len(runs) == 1
    assert [event.name for event in way.events if event.loud] == ["result.not_kept"]


def test_a_result_over_the_limit_is_not_made_again(way: Way) -> None:
    """A4, R18: the first caller gets all of it."""
    runs: list[int] = []
    way.once = way.make(Policy(response_limit=100))

    def work() -> str:
        runs.append(1)
        return "x" * 101

    assert len(way.call(K, work)) == 101
    with pytest.raises(ResultNotKeptError):
        way.call(K, work)
    assert len(runs) == 1


def test_an_argument_that_is_no_value_is_refused_by_name(way: Way, ledger: Ledger) -> None:
    """R8, R32: nothing is claimed, and the message says which parameter and what to do."""
    with pytest.raises(ValueNotKeptError, match=r"'customer'.*without="):
        way.call(K, ledger.charge, object())
    assert ledger.rows == []
    assert len(way.records) == 0


def test_a_parameter_may_be_no_part_of_what_is_asked_for(way: Way, ledger: Ledger) -> None:
    """R8: a session or a logger differs with each attempt."""

    def work(session: object, customer: str) -> Receipt:
        charged = ledger.charge(customer)
        return done(charged) if way.asynchronous else charged

    renew = way.once.operation(key=lambda session, customer: K, without=["session"])(work)
    assert way.end(renew(object(), "ann")) == way.end(renew(object(), "ann"))
    assert len(ledger.rows) == 1
    with pytest.raises(ConfigurationError, match="no parameter"):
        way.once.operation(key=lambda: K, without=["sesion"])(work)


# --- misuse ----------------------------------------------------------------------------------------------------------


def generating() -> Iterator[int]:
    yield 1


async def asynchronously() -> Any:
    yield 1


def test_generators_are_refused(way: Way) -> None:
    """R32: what a generator gives over time is no result."""
    for function in (generating, asynchronously):
        with pytest.raises(ConfigurationError, match="generator"):
            way.end(way.once(K, function))


def test_a_function_that_gives_what_nothing_has_run_yet_is_refused(ledger: Ledger) -> None:
    """R32, I6: a generator or a coroutine is no result; what the function did before is done, and not done again."""
    way = Way()

    def late() -> Any:
        ledger.charge("ann")
        return done(1)

    def listing() -> Any:
        ledger.charge("bob")
        return (row for row in ledger.rows)

    for number, work in enumerate((late, listing)):
        with pytest.raises(TypeError, match="give what it comes to"):
            way.call(f"{K}-{number}", work)
        with pytest.raises(FailedBeforeError):
            way.call(f"{K}-{number}", work)
    assert len(ledger.rows) == 2


def test_blocking_and_asynchronous_functions_are_told_apart() -> None:
    """R32: a coroutine function that nobody awaits would be recorded as done."""
    with pytest.raises(ConfigurationError, match="AsyncOnce"):
        Way().once(K, done, 1)
    with pytest.raises(ConfigurationError, match="asynchronous"):
        AsyncWay().once.__class__(Way().records, scope="jobs")
    with pytest.raises(ConfigurationError, match="blocking"):
        Way().once.__class__(AsyncWay().once._store, scope="jobs")


def test_a_contract_that_the_store_cannot_keep_is_refused(way: Way, ledger: Ledger) -> None:
    """R23: the memory store has no transactions, which is said where the function is declared."""
    with pytest.raises(ConfigurationError, match="transactional"):
        way.once.operation(key=lambda: K, effects="transactional")(way.own(ledger.charge))


def test_what_no_worker_could_go_on_with_is_refused(way: Way, ledger: Ledger) -> None:
    """R24, R27: a function that is only called has no name by which a worker finds it, and would be stuck."""
    way.once = way.make(Policy(effects="resumable"))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="operation"):
        way.call(K, ledger.charge, "ann")
    assert ledger.rows == []


def test_what_is_done_may_be_refused_to_duplicates(way: Way, ledger: Ledger) -> None:
    """I6: where duplicates get no result, they are told that it is done, and not that nothing was."""
    way.once = way.make(Policy(refuse_duplicates=True))
    way.call(K, ledger.charge, "ann")
    with pytest.raises(ResultNotKeptError):
        way.call(K, ledger.charge, "ann")
    assert len(ledger.rows) == 1


def test_outside_of_a_call_there_is_none() -> None:
    """R32: derived keys exist where there is a key to derive them from."""
    with pytest.raises(LookupError):
        current()


def test_a_store_that_cannot_be_reached_runs_nothing(way: Way, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """I2: without protection there is no run."""
    store = way.once._store

    def away(claim: Any) -> Any:
        raise StoreUnavailableError("away")

    async def aaway(claim: Any) -> Any:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(store, "claim", aaway if way.asynchronous else away)
    with pytest.raises(StoreUnavailableError):
        way.call(K, ledger.charge, "ann")
    assert ledger.rows == []
