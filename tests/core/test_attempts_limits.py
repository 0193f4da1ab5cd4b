"""Retry-After, budgets, policies and contracts: the numbers and words that limit a client."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.contract import Contract, contract_of
from twicesafe.core.keys import KeyRule, KeySyntax, check_key, derived_key
from twicesafe.core.retry_after import retry_after
from twicesafe.core.retry_budget import BudgetSize, RetryBudget
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.errors import ConfigurationError, InvalidKeyError

WALL = datetime(2015, 10, 21, 7, 28, tzinfo=UTC).timestamp()
DATE = (b"Date", b"Wed, 21 Oct 2015 06:28:00 GMT")
"""The server's clock is an hour behind."""

# --- Retry-After -----------------------------------------------------------------------------------------------------

LINES = [
    (b"0", 0.0),
    (b"120", 120.0),
    (b"  7 ", 7.0),
    (b"007", 7.0),
    (b"0.503", 0.503),
    (b"1.5", 1.5),
    (b"9" * 5000, math.inf),
    (b"0" * 5000 + b"1", 1.0),
    (b"soon", None),
    (b"", None),
    (b"-5", None),
    (b"+5", None),
    (b"5s", None),
    (b"1e3", None),
    (b"0x10", None),
    (b"nan", None),
    (b"inf", None),
    ("٣".encode(), None),
    (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
    (b"Wed, 21 Oct 2015 06:28:04 GMT", 4.0),
    (b"Wednesday, 21-Oct-15 06:28:04 GMT", 4.0),
    (b"Wed Oct 21 06:28:04 2015", 4.0),
    (b"Wed, 21 Oct 2015 06:27:00 GMT", 0.0),
    (b"Wed, 21 Oct 99999 06:28:04 GMT", None),
    (b"Wed, 32 Oct 2015 06:28:04 GMT", None),
    (b"Wed, 21 Oct 2015 06:28:04 +99999999", None),
]


@pytest.mark.parametrize(("line", "wait"), LINES)
def test_every_form_of_retry_after(line: bytes, wait: float | None) -> None:
    """R38, K: seconds, the three forms of a date, and what is neither."""
    assert retry_after([DATE, (b"Retry-After", line)], WALL) == wait


def test_a_server_without_a_clock() -> None:
    """R38: without a Date, or with one that makes no sense, the caller's calendar stands in."""
    asked = (b"retry-after", b"Wed, 21 Oct 2015 07:28:09 GMT")
    assert retry_after([asked], WALL) == 9.0
    assert retry_after([asked, (b"date", b"today")], WALL) == 9.0


def test_of_several_lines_the_longest_counts() -> None:
    """R38: nobody is bothered before the last of the times that were asked for."""
    lines = [(b"retry-after", b"3"), (b"Retry-After", b"11"), (b"RETRY-AFTER", b"soon")]
    assert retry_after(lines, WALL) == 11.0
    assert retry_after([], WALL) is None


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_retry_after_raises_nothing(line: bytes, date: bytes) -> None:
    """R38: whatever stands there, it is a wait of 0 or more, or none."""
    wait = retry_after([(b"retry-after", line), (b"date", date)], WALL)
    assert wait is None or wait >= 0


@given(st.integers(0, 10**8), st.integers(-(10**8), 10**8))
def test_clocks_that_differ_move_nothing(wait: int, skew: int) -> None:
    """R38: a date means as much later as the server's own Date says."""
    there = datetime.fromtimestamp(WALL, UTC) + timedelta(seconds=skew)
    lines = [
        (b"date", format_datetime(there, usegmt=True).encode()),
        (b"retry-after", format_datetime(there + timedelta(seconds=wait), usegmt=True).encode()),
    ]
    assert retry_after(lines, WALL) == wait


# --- budgets ---------------------------------------------------------------------------------------------------------


def test_a_budget_is_spent_and_earned() -> None:
    """R39: retries cost, successes and time pay, and a full budget holds no more."""
    budget = RetryBudget(BudgetSize(full=2.0, per_success=0.5, per_second=0.1), 0.0)
    assert budget.full(0.0)
    assert budget.take(1.0, 0.0) and budget.take(1.0, 0.0) and not budget.take(1.0, 0.0)
    budget.success(0.0)
    assert not budget.take(1.0, 0.0) and budget.left(0.0) == 0.5
    assert not budget.take(1.0, 4.9) and budget.take(1.0, 5.0)
    assert budget.left(1000.0) == 2.0 and budget.full(1000.0)


@given(st.lists(st.sampled_from(["fail", "succeed"]), max_size=400))
def test_retries_are_a_tenth_of_what_succeeds_and_a_burst(course: list[str]) -> None:
    """R39: whatever happens, no more is retried than the burst and what the successes paid for."""
    budget = RetryBudget(BudgetSize(full=10.0, per_success=0.1, per_second=0.0), 0.0)
    retried = 0
    for happening in course:
        if happening == "succeed":
            budget.success(0.0)
        else:
            retried += budget.take(1.0, 0.0)
    assert retried <= 10.0 + 0.1 * course.count("succeed") + 1e-9


def test_a_clock_that_goes_back_earns_nothing() -> None:
    """R39: threads that come late with an older now do not count a stretch of time twice."""
    budget = RetryBudget(BudgetSize(full=10.0, per_success=0.0, per_second=1.0), 0.0)
    assert budget.take(10.0, 0.0)
    assert [budget.left(2.0), budget.left(1.0), budget.left(2.0)] == [2.0, 2.0, 2.0]


# --- policies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 2.5},
        {"in_progress": -1},
        {"body_limit": -1},
        {"deadline": None},
        {"deadline": timedelta(0)},
        {"deadline": 20},
        {"attempt_timeout": timedelta(0)},
        {"first_delay": timedelta(seconds=-1)},
        {"longest_delay": None},
        {"work": "nightly"},
        {"header": ""},
        {"header": "Idempotency Key"},
        {"header": "Schlüssel"},
    ],
)
def test_a_wrong_setting_is_refused_where_it_is_made(wrong: dict[str, object]) -> None:
    """R39: nothing comes to mean "never" or "for ever" by accident."""
    with pytest.raises(ConfigurationError):
        RetryPolicy(**wrong)
    with pytest.raises(ConfigurationError):
        RetryPolicy().but(**wrong)


def test_a_budget_of_nonsense_is_refused() -> None:
    """R39: negative or undefined numbers are refused when the budget is made."""
    for size in (BudgetSize(-1.0, 0.1, 0.1), BudgetSize(1.0, math.nan, 0.1), BudgetSize(1.0, 0.1, -0.1)):
        with pytest.raises(ConfigurationError):
            RetryBudget(size, 0.0)


# --- contracts -------------------------------------------------------------------------------------------------------

TAG, ANY = (b"If-Match", b'"v1"'), (b"if-none-match", b" * ")

METHODS = [
    ("GET", (), False, Contract.SAFE),
    ("HEAD", (), True, Contract.SAFE),
    ("QUERY", (), False, Contract.SAFE),
    ("PUT", (), False, Contract.IDEMPOTENT),
    ("DELETE", (), False, Contract.IDEMPOTENT),
    ("PUT", (TAG,), False, Contract.CONDITIONAL),
    ("PUT", (ANY,), False, Contract.CONDITIONAL),
    ("PATCH", (TAG,), False, Contract.CONDITIONAL),
    ("PATCH", ((b"If-Match", b"*"),), False, Contract.NEVER),
    ("PATCH", ((b"If-None-Match", b'"v1"'),), False, Contract.NEVER),
    ("PATCH", ((b"If-Unmodified-Since", b"Wed, 21 Oct 2015 07:28:00 GMT"),), False, Contract.NEVER),
    ("PATCH", (), False, Contract.NEVER),
    ("POST", (), False, Contract.NEVER),
    ("POST", (TAG,), False, Contract.NEVER),
    ("LOCK", (), False, Contract.NEVER),
    ("POST", (), True, Contract.KEYED),
    ("PATCH", (TAG,), True, Contract.KEYED),
    ("PUT", (), True, Contract.KEYED),
]


@pytest.mark.parametrize(("method", "headers", "keyed", "contract"), METHODS)
def test_the_contract_that_a_request_has_by_itself(
    method: str, headers: tuple[tuple[bytes, bytes], ...], keyed: bool, contract: Contract
) -> None:
    """R36: by method, by key, and by a precondition that the effect itself makes false; otherwise never."""
    assert contract_of(method, headers, keyed=keyed) is contract


# --- derived keys ----------------------------------------------------------------------------------------------------


def test_a_derived_key_follows_from_what_the_intent_is() -> None:
    """R33: equal names and parts give one key, in every process and release; anything else gives another."""
    key = derived_key("charge", "cart-17")
    assert key == derived_key("charge", "cart-17") == "645102c8-6408-88ff-b716-ed8ea8c46b8c"
    assert check_key(key, KeyRule(KeySyntax.UUID)) == key
    others = [
        derived_key("refund", "cart-17"),
        derived_key("charge", "cart-1", "7"),
        derived_key("charge", "cart-18"),
        derived_key("chargecart-17", "x"),
        derived_key("charge", "cart-17", "2026-10"),
    ]
    assert len({key, *others}) == 6
    assert derived_key("charge", 17) == derived_key("charge", "17")
    assert derived_key("charge", UUID(int=7)) == derived_key("charge", str(UUID(int=7)))


@pytest.mark.parametrize("parts", [(), (None,), ("",), (True,), (1.5,), (b"cart",), ("cart", None)])
def test_what_is_missing_derives_no_key(parts: tuple[object, ...]) -> None:
    """G6: intents whose id is missing do not share one key: they get none."""
    with pytest.raises(InvalidKeyError):
        derived_key("charge", *parts)
    with pytest.raises(InvalidKeyError):
        derived_key("", "cart")
