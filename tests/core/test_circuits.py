"""A circuit breaker of another library's: when it is asked, and what it is told."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal

import pybreaker
import pytest

from tests.core.test_attempts import START, answered, failed
from twicesafe.core.attempts import Call, Send, Wait, attempts
from twicesafe.core.circuits import Circuit
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Attempt, Outcome, Rejected, Sent, Stop, Succeeded, Unknown
from twicesafe.core.retry_budget import BudgetSize, RetryBudget
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.errors import FailedAnswerError, UnknownError


class OpenError(Exception):
    """The breaker's own."""


class Breaker:
    """Lets `through` so many attempts, and keeps what it was told of each."""

    def __init__(self, through: int = 99) -> None:
        self.through = through
        self.told: list[BaseException | None] = []
        self.hosts: list[str] = []

    def __call__(self, host: str) -> Breaker:
        self.hosts.append(host)
        return self

    def __enter__(self) -> None:
        if not self.through:
            raise OpenError
        self.through -= 1

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        assert kind is (None if value is None else type(value))
        self.told.append(value)
        return False


def run(breaker: Any, *happenings: Any, contract: Contract = Contract.KEYED) -> tuple[Outcome[str], int]:
    """The outcome, and how many attempts were sent."""
    policy, now, trail, played = RetryPolicy(), START, list[Attempt](), iter(happenings)
    budget = RetryBudget(BudgetSize(100.0, 0.0, 0.0), START)
    call = Call(contract, "k-1", policy, START + policy.deadline_s)
    decisions = attempts(call, budget, START, trail, Circuit(breaker, "pay.example"))
    sent = 0
    try:
        step = next(decisions)
        while True:
            if isinstance(step, Wait):
                now += step.seconds
                step = decisions.send(now)
            else:
                assert isinstance(step, Send)
                sent += 1
                event = next(played)(step, now)
                now = event.now
                step = decisions.send(event)
    except StopIteration as end:
        assert not list(played), "a further attempt was expected"
        outcome: Outcome[str] = end.value
        assert list(outcome.attempts) == trail
        return outcome, sent


def test_an_open_circuit_ends_the_call_before_anything_is_sent() -> None:
    """R39, R35: nothing was sent, which is proved; the error is the breaker's own; there is no attempt to show."""
    breaker = Breaker(through=0)
    outcome, sent = run(breaker)
    assert sent == 0 and breaker.hosts == ["pay.example"] and breaker.told == []
    assert isinstance(outcome, Unknown) and isinstance(outcome.error, OpenError)
    assert (outcome.sent, outcome.stop, outcome.attempts, outcome.key) == (Sent.NO, Stop.CIRCUIT, (), "k-1")
    with pytest.raises(UnknownError, match="never sent"):
        outcome.raise_for_outcome()


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (answered(503, "Retry-After: 1"), Rejected),
        (answered(503), Unknown),
        (failed(Sent.YES), Unknown),
        (failed(Sent.NO), Unknown),
    ],
)
def test_a_circuit_that_opens_meanwhile_leaves_what_is_known(first: Any, kind: type) -> None:
    """R39, R35: the answer or the failure that came last is the outcome, as when the attempts are used up."""
    outcome, sent = run(Breaker(through=1), first)
    assert sent == 1 and type(outcome) is kind
    assert outcome.stop is outcome.attempts[-1].stop is Stop.CIRCUIT
    if isinstance(outcome, Unknown):
        assert outcome.sent is outcome.attempts[0].sent and not isinstance(outcome.error, OpenError)


def test_a_breaker_is_told_of_each_attempt() -> None:
    """R39: what failed of the server, or on the way to it, counts; what it refused or has recorded does not."""
    breaker = Breaker()
    outcome, _ = run(breaker, failed(Sent.NO), answered(500), answered(429), answered(201))
    assert isinstance(outcome, Succeeded)
    lost, broke, limited, done = breaker.told
    assert isinstance(lost, OSError) and isinstance(broke, FailedAnswerError)
    assert limited is done is None
    for final in (answered(402), answered(501), answered(500, "Idempotent-Replayed: true")):
        breaker = Breaker()
        run(breaker, final)
        assert breaker.told == [None]


def test_a_breaker_is_told_that_its_caller_gave_up() -> None:
    """R39: an attempt that is cancelled is over for the breaker too, which may not count it."""
    breaker = Breaker()
    call = Call(Contract.SAFE, None, RetryPolicy(), START + 30)
    decisions = attempts(call, RetryBudget(BudgetSize(1.0, 0.0, 0.0), START), START, [], Circuit(breaker, "x"))
    next(decisions)
    decisions.close()
    assert [type(told) for told in breaker.told] == [GeneratorExit]


def test_a_breaker_that_raises_what_it_is_told_disturbs_nothing() -> None:
    """R39: some raise anew, or say on that occasion that they are open from now on."""

    class Loud(Breaker):
        def __exit__(self, *told: Any) -> Literal[False]:
            super().__exit__(*told)
            raise OpenError

    breaker = Loud()
    assert isinstance(run(breaker, answered(500), answered(201))[0], Succeeded)
    assert len(breaker.told) == 2


def test_pybreaker_fits() -> None:
    """R39: opened by five failures, it lets nothing through; half open, one success closes it again."""
    real = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=60, exclude=[GeneratorExit])

    def breaker(host: str) -> Any:
        return real.calling()

    down = answered(500)
    assert run(breaker, down, down, down, down)[1] == 4
    outcome, sent = run(breaker, down)
    assert (sent, outcome.stop, real.current_state) == (1, Stop.CIRCUIT, "open")
    outcome, sent = run(breaker)
    assert sent == 0 and isinstance(outcome, Unknown) and isinstance(outcome.error, pybreaker.CircuitBreakerError)
    real.half_open()
    assert isinstance(run(breaker, answered(200))[0], Succeeded) and real.current_state == "closed"
    call = Call(Contract.SAFE, None, RetryPolicy(), START + 30)
    for _ in range(9):
        given_up = attempts(call, RetryBudget(BudgetSize(1.0, 0.0, 0.0), START), START, [], Circuit(breaker, "x"))
        next(given_up)
        given_up.close()
    assert real.current_state == "closed", "a caller's impatience was not counted"
