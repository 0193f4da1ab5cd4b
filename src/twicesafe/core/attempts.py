"""The client side of one operation, as a generator: it yields what is to be done and is sent what happened.

Bindings perform, this decides. Time and chance come in with the events: `now` is in seconds on the caller's steady
clock, `fraction` is drawn anew from [0, 1) for each event. Closing the generator at any yield changes nothing: the key
and the bytes are the caller's, and can be sent again (I8).

Before each attempt the host's circuit breaker is asked, where it has one. The order of the questions after each: is the
answer final; may the operation be repeated; are attempts left; does the wait fit the deadline; does the server still
know the key then; does the host's budget allow it. Whatever says no first ends the call at once, with what is known.
And what is known never turns worse into better: once an attempt may have taken effect, only a success, or an answer
that the server marks as the recorded one, tells what became of it.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from twicesafe.core.answers import NOT_IMPLEMENTED, PLAIN, Again, Judgment, Says, Wording, judge
from twicesafe.core.circuits import Circuit
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Attempt, FailureKind, Outcome, Rejected, Sent, Stop, Succeeded, Unknown
from twicesafe.core.record import HeaderLines
from twicesafe.core.retry_after import retry_after
from twicesafe.core.retry_budget import Budget
from twicesafe.core.retry_policy import SHORTEST_ATTEMPT, RetryPolicy
from twicesafe.errors import FailedAnswerError

R = TypeVar("R")

# --- steps -----------------------------------------------------------------------------------------------------------


class Send(NamedTuple):
    """Send the operation, the same key and the same bytes. Sent back: Answered or Failed."""

    number: int
    timeout: float
    """Seconds for the whole of this attempt."""


class Wait(NamedTuple):
    """Let time pass. Sent back: the new now."""

    seconds: float


Step: TypeAlias = Send | Wait

# --- events ----------------------------------------------------------------------------------------------------------


class Answered(NamedTuple, Generic[R]):
    """An answer came, as far as the binding reads it. `response` is passed through to the outcome.

    `body` is the decoded body of an error, or None where it was not read; `wall` is in seconds since the Unix epoch.
    """

    response: R
    status: int
    headers: HeaderLines
    body: bytes | None
    now: float
    fraction: float
    wall: float


class Failed(NamedTuple, Generic[R]):
    """No whole answer came. `response` and `status` are set where its head had arrived and its body broke."""

    error: BaseException
    kind: FailureKind
    sent: Sent
    now: float
    fraction: float
    response: R | None = None
    status: int | None = None


class Call(NamedTuple):
    """One operation, as the rules see it. `until`: the deadline on the caller's steady clock.

    `window`: for how many seconds after it was first sent its key may be sent again; None where nobody knows.
    """

    contract: Contract
    key: str | None
    policy: RetryPolicy
    until: float
    wording: Wording = PLAIN
    window: float | None = None


Attempts: TypeAlias = Generator[Step, "Answered[R] | Failed[R] | float | None", Outcome[R]]
"""Sent None for its first step, which may also be its end: where nothing is to be sent."""


def attempts(
    call: Call, budget: Budget, now: float, trail: list[Attempt], circuit: Circuit | None = None
) -> Attempts[R]:
    """One operation from its first attempt to its outcome. Each attempt that ends is added to `trail`."""
    contract, key, policy, until, wording, window = call
    began, number, failures, waits = now, 0, 0, 0
    sent_before, known_until = Sent.NO, math.inf
    perhaps_done = False
    last: tuple[Answered[R] | Failed[R], Judgment] | None = None
    while True:
        refusal = None if circuit is None else circuit.refusal()
        if refusal is not None:
            open_ = Stop.CIRCUIT
            if last is None:
                return Unknown(key=key, sent=Sent.NO, attempts=(), stop=open_, error=refusal)
            trail[-1] = trail[-1]._replace(stop=open_)
            return _conclude(*last, open_, contract, key, sent_before, tuple(trail), perhaps_done=perhaps_done)
        number += 1
        started = now
        try:
            event = yield Send(number, min(policy.attempt_s, until - now))
        except BaseException as given_up:
            if circuit is not None:
                circuit.ended(given_up)
            raise
        assert event is not None and not isinstance(event, float)
        now = event.now
        judgment, sent = _judge(event, contract, wording)
        last = event, judgment
        if circuit is not None:
            circuit.ended(_failure(event, judgment))
        if sent is not Sent.NO and sent_before is Sent.NO and window is not None and contract is Contract.KEYED:
            known_until = started + window
        if judgment.again is Again.IN_PROGRESS:
            waits += 1
        else:
            failures += 1
        delay, stop = _plan(call, event, judgment, sent, failures, waits, budget, known_until)
        trail.append(
            Attempt(
                number=number,
                began=started - began,
                seconds=now - started,
                sent=sent,
                status=event.status,
                failure=event.kind if isinstance(event, Failed) else None,
                reason=judgment.reason,
                delay=delay,
                stop=stop,
                deadline_left=until - now,
                budget_left=budget.success(now) if judgment.says is Says.DONE else budget.left(now),
            )
        )
        sent_before = sent if sent is Sent.YES or sent_before is Sent.NO else sent_before
        if delay is not None:
            woke = yield Wait(delay)
            assert isinstance(woke, float)
            if until - woke >= SHORTEST_ATTEMPT / 2 and woke < known_until:
                now = woke
                perhaps_done = perhaps_done or judgment.says is Says.NOTHING
                continue
            # Slept longer than was asked for.
            stop = Stop.DEADLINE if woke < known_until else Stop.FORGOTTEN
        assert stop is not None
        return _conclude(event, judgment, stop, contract, key, sent_before, tuple(trail), perhaps_done=perhaps_done)


def done_at_once(status: int) -> bool:
    """Whether attempts() would make a success of a first answer, whatever else it holds and the contract is."""
    return 200 <= status < 300


def _judge(event: Answered[R] | Failed[R], contract: Contract, wording: Wording) -> tuple[Judgment, Sent]:
    if isinstance(event, Failed):
        again = Again.NO if event.kind is FailureKind.UNTRUSTED else Again.YES
        says = Says.NOT_DONE if event.sent is Sent.NO else Says.NOTHING
        where = "" if event.status is None else f" in the body of a {event.status}"
        return Judgment(again, says, f"{event.kind}{where}"), event.sent
    return judge(event.status, event.headers, event.body, contract=contract, wording=wording), Sent.YES


def _failure(event: Answered[R] | Failed[R], judgment: Judgment) -> BaseException | None:
    """What a circuit breaker is to hear of an attempt: whether the server, or the way to it, failed."""
    if isinstance(event, Failed):
        return event.error
    if event.status < 500 or event.status in NOT_IMPLEMENTED or judgment.replayed:
        return None
    return FailedAnswerError(f"answered {event.status}")


def _plan(
    call: Call,
    event: Answered[R] | Failed[R],
    judgment: Judgment,
    sent: Sent,
    failures: int,
    waits: int,
    budget: Budget,
    known_until: float,
) -> tuple[float, None] | tuple[None, Stop]:
    """The seconds to wait before the next attempt, or why there is none."""
    contract, policy, until = call.contract, call.policy, call.until
    if judgment.again is Again.NO:
        return None, Stop.HOPELESS if isinstance(event, Failed) else Stop.ANSWERED
    if contract is Contract.NEVER and sent is not Sent.NO:
        return None, Stop.NOT_REPEATABLE
    in_progress = judgment.again is Again.IN_PROGRESS
    if waits > policy.in_progress if in_progress else failures >= policy.attempts:
        return None, Stop.ATTEMPTS
    window = policy.window(waits if in_progress else failures)
    longest = until - event.now - SHORTEST_ATTEMPT
    asked = None if isinstance(event, Failed) else retry_after(event.headers, event.wall)
    delay = _delay(asked, window, longest, event.fraction, policy)
    if delay is None:
        return None, Stop.DEADLINE
    if event.now + delay >= known_until:
        return None, Stop.FORGOTTEN
    # To ask after an attempt that is at work is no load worth mentioning. One that may still be at work, and was given
    # up, is worth two refusals.
    cost = 0.0 if in_progress else 2.0 if judgment.says is Says.NOTHING else 1.0
    return (delay, None) if budget.take(cost, event.now) else (None, Stop.BUDGET)


def _delay(asked: float | None, window: float, longest: float, fraction: float, policy: RetryPolicy) -> float | None:
    """Full jitter below `window`; what the server asked for is a floor, and the jitter goes above it (R38).

    A fleet that was told the same Retry-After comes back over half of that time again, not in lockstep.
    """
    if asked is None:
        delay = fraction * window
        return delay if delay <= longest else None
    if asked > longest:
        return None
    spread = min(max(window, asked / 2), policy.longest_delay.total_seconds(), longest - asked)
    return max(asked, min(asked + fraction * spread, longest))


def _conclude(
    event: Answered[R] | Failed[R],
    judgment: Judgment,
    stop: Stop,
    contract: Contract,
    key: str | None,
    sent: Sent,
    trail: tuple[Attempt, ...],
    *,
    perhaps_done: bool,
) -> Outcome[R]:
    """The three outcomes (R35)."""
    if isinstance(event, Failed):
        return Unknown(key=key, sent=sent, attempts=trail, stop=stop, response=event.response, error=event.error)
    if judgment.says is Says.DONE:
        return Succeeded(response=event.response, key=key, attempts=trail, replayed=judgment.replayed)
    refused = judgment.says is Says.NOT_DONE and not perhaps_done
    if refused or judgment.says is Says.NEVER or contract is Contract.SAFE:
        return Rejected(response=event.response, key=key, attempts=trail, replayed=judgment.replayed, stop=stop)
    return Unknown(key=key, sent=sent, attempts=trail, stop=stop, response=event.response)
