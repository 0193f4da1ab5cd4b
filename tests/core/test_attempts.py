"""The client's rules, by scripted events: no clock, no chance, no network."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.attempts import Answered, Call, Failed, Send, Wait, attempts
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Attempt, FailureKind, Outcome, Rejected, Sent, Stop, Succeeded, Unknown
from twicesafe.core.retry_budget import BudgetSize, RetryBudget
from twicesafe.core.retry_policy import SHORTEST_ATTEMPT, RetryPolicy

START = 1000.0
WALL = 1_790_000_000.0
PLENTY = BudgetSize(100.0, 0.0, 0.0)

Event: TypeAlias = Answered[str] | Failed[str]
Happening: TypeAlias = Callable[[Send, float], Event]
"""What an attempt that was sent at a given now leads to."""


def answered(
    status: int, *lines: str, body: bytes | None = None, took: float = 0.1, fraction: float = 0.5
) -> Happening:
    """An answer after `took` seconds."""
    headers = tuple((n.encode(), v.strip().encode()) for n, _, v in (line.partition(":") for line in lines))
    return lambda send, now: Answered(str(status), status, headers, body, now + took, fraction, WALL)


def failed(
    sent: Sent = Sent.YES,
    kind: FailureKind = FailureKind.DROPPED,
    took: float | None = 0.1,
    fraction: float = 0.5,
    status: int | None = None,
) -> Happening:
    """No answer, after `took` seconds or all that the attempt was given."""
    return lambda send, now: Failed(
        OSError(), kind, sent, now + (send.timeout if took is None else took), fraction, None, status
    )


class Course(NamedTuple):
    """What was done, and what came of it."""

    outcome: Outcome[str]
    sends: list[Send]
    waits: list[float]
    ended: float
    trail: list[Attempt]


def run(
    *happenings: Happening,
    contract: Contract = Contract.KEYED,
    budget: BudgetSize = PLENTY,
    oversleep: float = 0.0,
    **policy: object,
) -> Course:
    """Drive one operation through `happenings`; the last one goes on for ever."""
    limits = RetryPolicy(**policy)
    now, sends, waits, trail = START, [], [], []
    purse = RetryBudget(budget, START)
    decisions = attempts(Call(contract, "k-1", limits, START + limits.deadline_s), purse, START, trail)
    step = next(decisions)
    while True:
        if isinstance(step, Wait):
            waits.append(step.seconds)
            now += step.seconds + oversleep
            event: Event | float = now
        else:
            event = happenings[min(len(sends), len(happenings) - 1)](step, now)
            sends.append(step)
            now = event.now
        try:
            step = decisions.send(event)
        except StopIteration as end:
            return Course(end.value, sends, waits, now, trail)


def test_success_needs_one_attempt() -> None:
    """R35: an answer that succeeds ends the call, with the response, the key and the record of one attempt."""
    course = run(answered(201))
    assert course.outcome == Succeeded(response="201", key="k-1", attempts=tuple(course.trail))
    assert course.sends == [Send(1, 10.0)] and course.waits == []


def test_every_attempt_is_recorded() -> None:
    """R40: number, time, reason, delay, what is left of the deadline and the budget, and why it ended."""
    course = run(failed(Sent.NO, FailureKind.CONNECT), answered(503, took=0.2), answered(200), budget=PLENTY)
    first, second, third = course.outcome.attempts
    assert (first.number, first.began, first.sent, first.failure) == (1, 0.0, Sent.NO, FailureKind.CONNECT)
    assert first.seconds == pytest.approx(0.1) and first.delay == pytest.approx(0.25)
    assert first.deadline_left == pytest.approx(29.9) and first.budget_left == 99.0
    assert second.began == pytest.approx(0.35) and (second.status, second.reason) == (503, "503")
    assert second.budget_left == 97.0, "an attempt that may have taken effect costs more"
    assert (third.number, third.stop, third.delay) == (3, Stop.ANSWERED, None)
    assert course.trail == [first, second, third]


def test_attempts_are_bounded() -> None:
    """R39: as many attempts as the policy says, and not one more."""
    course = run(answered(503), attempts=3)
    assert len(course.sends) == 3 and len(course.waits) == 2
    assert isinstance(course.outcome, Unknown) and course.outcome.stop is Stop.ATTEMPTS


def test_in_progress_is_waited_out_beyond_the_attempts() -> None:
    """R36, K: the first attempt is at work: the answer "in progress" is no failure and uses up no attempt."""
    busy = answered(409, "retry-after: 1")
    course = run(failed(), *[busy] * 8, answered(201, "idempotent-replayed: true"), attempts=2)
    assert isinstance(course.outcome, Succeeded) and course.outcome.replayed
    assert len(course.sends) == 10
    assert all(wait >= 1.0 for wait in course.waits[1:])


def test_in_progress_is_bounded_all_the_same() -> None:
    """R39: by the deadline, and by a number of its own."""
    by_time = run(answered(409, "retry-after: 5"), deadline=timedelta(seconds=20))
    assert isinstance(by_time.outcome, Unknown) and by_time.outcome.stop is Stop.DEADLINE
    assert by_time.ended <= START + 20
    by_number = run(answered(409, "retry-after: 0"), in_progress=4, first_delay=timedelta(milliseconds=1))
    assert isinstance(by_number.outcome, Unknown) and by_number.outcome.stop is Stop.ATTEMPTS
    assert len(by_number.sends) == 5


def test_a_wait_that_does_not_fit_ends_the_call_at_once() -> None:
    """R38, K: Retry-After 60 in a call of 5 seconds: no wait, no early return to the server, the 503 as it came."""
    course = run(answered(503, "retry-after: 60"), deadline=timedelta(seconds=5))
    assert (len(course.sends), course.waits, course.ended) == (1, [], START + 0.1)
    assert isinstance(course.outcome, Rejected) and course.outcome.stop is Stop.DEADLINE
    assert course.outcome.response == "503"


def test_the_deadline_clips_every_attempt() -> None:
    """R39, K: two seconds in all are two seconds in all: each attempt gets what is left of them."""
    course = run(failed(took=None), deadline=timedelta(seconds=2), attempt_timeout=timedelta(seconds=0.8))
    assert [send.timeout for send in course.sends] == pytest.approx([0.8, 0.8])
    one = run(failed(took=None), deadline=timedelta(seconds=2), attempt_timeout=None)
    assert [send.timeout for send in one.sends] == [2.0] and one.ended == START + 2
    assert isinstance(one.outcome, Unknown) and one.outcome.stop is Stop.DEADLINE


def test_who_oversleeps_does_not_send_again() -> None:
    """R39: a machine that slept through the deadline finds the call ended, not a further attempt."""
    course = run(failed(), oversleep=3600.0)
    assert len(course.sends) == 1
    assert isinstance(course.outcome, Unknown) and course.outcome.stop is Stop.DEADLINE


def test_an_empty_budget_returns_the_original_result() -> None:
    """R39: where retries cannot be afforded the answer that came is the answer."""
    course = run(answered(429), budget=BudgetSize(1.5, 0.0, 0.0))
    assert len(course.sends) == 2
    assert isinstance(course.outcome, Rejected)
    assert (course.outcome.stop, course.outcome.response) == (Stop.BUDGET, "429")
    none = run(failed(), budget=BudgetSize(1.5, 0.0, 0.0))
    assert len(none.sends) == 1, "what may still be at work costs two"
    free = run(answered(409, "retry-after: 1"), answered(200), budget=BudgetSize(0.0, 0.0, 0.0))
    assert isinstance(free.outcome, Succeeded), "waiting for an attempt that is at work costs nothing"


def test_a_keyless_post_is_sent_once() -> None:
    """R36, K: whatever may have been sent is not sent again without a key."""
    for happening in (failed(Sent.YES), failed(Sent.MAYBE), answered(503, "retry-after: 1"), answered(500)):
        course = run(happening, contract=Contract.NEVER)
        assert len(course.sends) == 1
        assert course.outcome.stop is Stop.NOT_REPEATABLE
    assert isinstance(run(failed(Sent.MAYBE), contract=Contract.NEVER).outcome, Unknown)


def test_what_was_not_sent_may_be_sent() -> None:
    """R35: where the transport proves that nothing left, even that operation is tried again."""
    course = run(failed(Sent.NO), failed(Sent.NO), answered(201), contract=Contract.NEVER)
    assert len(course.sends) == 3 and isinstance(course.outcome, Succeeded)
    nowhere = run(failed(Sent.NO), contract=Contract.NEVER)
    assert isinstance(nowhere.outcome, Unknown) and nowhere.outcome.sent is Sent.NO


def test_a_refused_certificate_is_not_tried_again() -> None:
    """R36: a failure that does not pass is not a transient one."""
    course = run(failed(Sent.NO, FailureKind.UNTRUSTED))
    assert len(course.sends) == 1
    assert isinstance(course.outcome, Unknown) and course.outcome.stop is Stop.HOPELESS


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 410, 412, 415, 422])
def test_after_an_unknown_a_refusal_settles_nothing(status: int) -> None:
    """R37, I6: the first attempt may have done it; a refusal of the second, 422 above all, does not undo that."""
    course = run(failed(), answered(status))
    assert len(course.sends) == 2
    assert isinstance(course.outcome, Unknown) and course.outcome.response == str(status)
    marked = run(failed(), answered(status, "Idempotent-Replayed: true"))
    assert isinstance(marked.outcome, Rejected) and marked.outcome.replayed


JSON = "content-type: application/problem+json"
STORE_DOWN = b'{"type": "urn:twicesafe:problem:store-unavailable", "retryable": true, "safe_new_key": false}'
MISMATCH = b'{"type": "urn:twicesafe:problem:key-reused", "retryable": false, "safe_new_key": false}'


def test_a_mismatch_on_the_first_attempt_settles_nothing() -> None:
    """I6, R37: another process may have paid under a derived key with other bytes; "not done" would pay twice."""
    course = run(answered(422, JSON, body=MISMATCH))
    assert len(course.sends) == 1
    assert isinstance(course.outcome, Unknown) and course.outcome.response == "422"
    assert (course.outcome.sent, course.outcome.stop) == (Sent.YES, Stop.ANSWERED)


def test_a_server_that_cannot_look_a_key_up_does_not_say_what_it_names() -> None:
    """I6, R15: while the store is down nobody knows the key; once it is back, a refusal is one."""
    down = answered(503, JSON, "retry-after: 1", body=STORE_DOWN)
    course = run(down, attempts=2)
    assert len(course.sends) == 2 and isinstance(course.outcome, Unknown)
    assert course.trail[0].budget_left == 99.0, "it did nothing, and costs what a refusal costs"
    course = run(down, answered(402), attempts=2)
    assert len(course.sends) == 2 and isinstance(course.outcome, Rejected)


@pytest.mark.parametrize("status", [200, 302, 400, 409, 422, 429, 500, 503])
def test_a_replay_is_final_whatever_its_status(status: int) -> None:
    """R37, K: a recorded 500 or 503 comes back for ever: it is an answer, not a failure to be tried again."""
    course = run(answered(status, "Idempotent-Replayed: true", "Retry-After: 1"))
    assert len(course.sends) == 1
    assert isinstance(course.outcome, Succeeded if status < 400 else Rejected) and course.outcome.replayed


def test_success_pays_back() -> None:
    """R39: each success earns a part of a retry."""
    purse = RetryBudget(BudgetSize(10.0, 0.5, 0.0), START)
    purse.take(5.0, START)
    policy = RetryPolicy()
    decisions = attempts(Call(Contract.KEYED, "k", policy, START + 30), purse, START, [])
    next(decisions)
    with pytest.raises(StopIteration):
        decisions.send(answered(200)(Send(1, 1.0), START))
    assert purse.left(START + 1) == 5.5


FRACTIONS = st.floats(0, 1, exclude_max=True)
RETRY_AFTERS = st.sampled_from(
    ["", "retry-after: 0", "retry-after: 1", "retry-after: 7", "retry-after: 90", "retry-after: soon"]
)


@st.composite
def happenings(draw: st.DrawFn) -> Happening:
    """Anything that passes and is tried again."""
    fraction = draw(FRACTIONS)
    part = draw(st.floats(0, 1))

    def happen(send: Send, now: float) -> Event:
        took = part * send.timeout
        if draw_failure:
            return failed(took=took, fraction=fraction)(send, now)
        lines = [asked] if asked else []
        return answered(status, *lines, took=took, fraction=fraction)(send, now)

    draw_failure = draw(st.booleans())
    status = draw(st.sampled_from([408, 409, 425, 429, 500, 502, 503, 504]))
    asked = draw(RETRY_AFTERS)
    return happen


@given(
    st.lists(happenings(), min_size=1, max_size=12),
    st.floats(0.2, 60),
    st.floats(0.05, 60),
    st.floats(0.001, 5),
    st.floats(0.001, 20),
)
def test_waits_and_timeouts_never_exceed_the_deadline(
    course: list[Happening], deadline: float, attempt: float, first: float, longest: float
) -> None:
    """R39: however it goes, all waits and all time-outs together fit into the deadline."""
    ran = run(
        *course,
        deadline=timedelta(seconds=deadline),
        attempt_timeout=timedelta(seconds=attempt),
        first_delay=timedelta(seconds=first),
        longest_delay=timedelta(seconds=longest),
        attempts=10,
    )
    assert ran.ended - START <= deadline + 1e-6
    left = [deadline - record.began for record in ran.trail]
    for send, rest in zip(ran.sends, left, strict=True):
        assert 0 < send.timeout <= min(attempt, rest) + 1e-6
    assert all(send.timeout >= min(SHORTEST_ATTEMPT, attempt) - 1e-6 for send in ran.sends[1:])


@given(FRACTIONS, st.integers(1, 12), st.floats(0.001, 5), st.floats(0.001, 20))
def test_backoff_is_drawn_below_a_window_that_is_capped_first(
    fraction: float, failures: int, first: float, longest: float
) -> None:
    """R38, K: full jitter also where the backoff has long reached its cap: the cap comes before the draw."""
    ran = run(
        answered(429, took=0.0, fraction=fraction),
        attempts=failures + 1,
        deadline=timedelta(hours=1),
        first_delay=timedelta(seconds=first),
        longest_delay=timedelta(seconds=longest),
    )
    cap = timedelta(seconds=longest).total_seconds()
    windows = [min(cap, timedelta(seconds=first).total_seconds() * 2**n) for n in range(failures)]
    assert ran.waits == pytest.approx([fraction * window for window in windows])


def test_delays_at_the_cap_still_differ() -> None:
    """K: two clients that have failed equally often do not come back together."""
    waits = [
        run(answered(429, fraction=f), attempts=12, deadline=timedelta(hours=1)).waits[-1] for f in (0.1, 0.5, 0.9)
    ]
    assert waits == pytest.approx([1.0, 5.0, 9.0])


@given(FRACTIONS, st.integers(0, 25))
def test_jitter_goes_above_what_the_server_asked_for(fraction: float, asked: int) -> None:
    """R38: never a moment earlier than Retry-After, and not all at that moment either."""
    ran = run(answered(503, f"retry-after: {asked}", fraction=fraction), answered(200))
    (wait,) = ran.waits
    assert asked <= wait <= asked + max(0.5, asked / 2)
    assert wait + 0.1 + SHORTEST_ATTEMPT <= 30.0 + 1e-9


def test_a_fleet_that_was_told_5_comes_back_spread() -> None:
    """R38, R42: of 500 clients told the same Retry-After no tenth of a second holds more than a seventh."""
    waits = [run(answered(503, "retry-after: 5", fraction=n / 500), answered(200)).waits[0] for n in range(500)]
    assert min(waits) >= 5.0
    crowds = [sum(start <= wait < start + 0.1 for wait in waits) for start in waits]
    assert max(crowds) < 500 / 7


def test_a_date_is_measured_from_the_answers_own() -> None:
    """R38, K: a server whose clock is an hour off is left alone for the four seconds it meant."""
    ran = run(
        answered(503, "Date: Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After: Wed, 21 Oct 2015 07:28:04 GMT"),
        answered(200),
    )
    assert 4.0 <= ran.waits[0] <= 6.0


@pytest.mark.parametrize(
    "line", ["soon", "", "-1", "9" * 5000, "0.503", "1e3", "\xff", "Wed, 99 Foo 2015 07:28:00 GMT"]
)
def test_a_retry_after_that_makes_no_sense_loses_nothing(line: str) -> None:
    """R38, K: a malformed Retry-After raises nothing; the answer it came with stays the answer."""
    ran = run(answered(503, f"retry-after: {line}"), attempts=2)
    assert ran.outcome.response == "503"
    assert len(ran.sends) in (1, 2)


def test_closing_it_at_any_step_changes_nothing() -> None:
    """R36: cancellation passes through: the generator ends, nobody is asked for anything more."""
    decisions = attempts(
        Call(Contract.KEYED, "k", RetryPolicy(), START + 30), RetryBudget(PLENTY, START), START, trail := []
    )
    assert isinstance(next(decisions), Send)
    assert isinstance(decisions.send(failed()(Send(1, 1.0), START)), Wait)
    decisions.close()
    assert [record.number for record in trail] == [1]
