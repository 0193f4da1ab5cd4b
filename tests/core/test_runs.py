"""What the runs of an intent prove together."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations_with_replacement, permutations

import pytest

from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Attempt, Outcome, Rejected, Sent, Stop, Succeeded, Unknown
from twicesafe.core.runs import KNOWN, Promise, Run, Standing, Verdict, may_send, standing_of, told, verdict_of

NOW = 1_790_000_000_000_000
HOUR = timedelta(hours=1)
HOUR_US = 3_600_000_000
KEYED = Promise(Contract.KEYED, HOUR)
ATTEMPT = Attempt(1, 0.0, 1.0, Sent.YES, 402, None, "402", None, Stop.ANSWERED, 9.0, 9.0)


def run(verdict: Verdict, began_at: int = NOW) -> Run:
    return Run(began_at, 1, verdict)


def rejected(*, replayed: bool = False) -> Outcome[str]:
    return Rejected(response="402", key="k", attempts=(ATTEMPT,), replayed=replayed)


def unknown(sent: Sent) -> Outcome[str]:
    return Unknown(key="k", sent=sent, attempts=(ATTEMPT,), stop=Stop.ATTEMPTS)


@pytest.mark.parametrize(
    ("verdicts", "standing"),
    [
        ((), Standing.RESERVED),
        ((Verdict.UNSENT,), Standing.RESERVED),
        ((Verdict.OPEN,), Standing.UNKNOWN),
        ((Verdict.OPEN, Verdict.UNSENT), Standing.UNKNOWN),
        ((Verdict.NOT_DONE,), Standing.REJECTED),
        ((Verdict.NOT_DONE, Verdict.UNSENT), Standing.REJECTED),
        ((Verdict.OPEN, Verdict.NOT_DONE), Standing.UNKNOWN),
        ((Verdict.OPEN, Verdict.REFUSED), Standing.REJECTED),
        ((Verdict.OPEN, Verdict.DONE), Standing.SUCCEEDED),
        ((Verdict.NOT_DONE, Verdict.DONE), Standing.SUCCEEDED),
    ],
)
def test_what_the_runs_prove_together(verdicts: tuple[Verdict, ...], standing: Standing) -> None:
    """R34, R35, I6: a refusal proves nothing while another run may have had the effect; a recorded one proves all."""
    for order in permutations(verdicts):
        assert standing_of([run(verdict) for verdict in order], KEYED, NOW) is standing


def test_the_order_in_which_runs_end_does_not_count() -> None:
    """I6: whichever of some runs ends first, what is known in the end is the same, and what is known stays so."""
    for verdicts in combinations_with_replacement(Verdict, 3):
        standings = {standing_of([run(one) for one in order], KEYED, NOW) for order in permutations(verdicts)}
        assert len(standings) == 1, verdicts
        if standings <= {Standing.SUCCEEDED}:
            for more in Verdict:
                assert standing_of([run(one) for one in (*verdicts, more)], KEYED, NOW) is Standing.SUCCEEDED


def test_past_the_memory_of_the_server_nothing_is_sent_again() -> None:
    """R34, R36: the window runs from the first run that may have been sent, and ends before the server's memory."""
    runs = [run(Verdict.UNSENT, NOW - 9 * HOUR_US), run(Verdict.OPEN), run(Verdict.OPEN, NOW + HOUR_US // 2)]
    last = NOW + HOUR_US - 60_000_000
    assert standing_of(runs, KEYED, last - 1) is Standing.UNKNOWN and may_send(runs, KEYED, last - 1)
    assert KEYED.left(runs, last - 1) == 1
    assert standing_of(runs, KEYED, last) is Standing.OVERDUE and not may_send(runs, KEYED, last)
    done = [*runs, run(Verdict.DONE, last)]
    assert may_send(done, KEYED, last - 1) and not may_send(done, KEYED, last)
    assert not KEYED.forgotten(done, NOW, NOW + HOUR_US - 1) and KEYED.forgotten(done, NOW, NOW + HOUR_US)


def test_the_first_run_ends_within_the_memory_too() -> None:
    """R34: what was never sent may be sent at any time, for as long as the server will know its key."""
    assert standing_of([], KEYED, NOW + 99 * HOUR_US) is Standing.RESERVED
    assert KEYED.left([], NOW) == HOUR_US - 60_000_000


@pytest.mark.parametrize(
    ("contract", "remembers", "again"),
    [
        (Contract.KEYED, None, False),
        (Contract.NEVER, None, False),
        (Contract.NEVER, HOUR, False),
        (Contract.IDEMPOTENT, None, True),
        (Contract.IDEMPOTENT, HOUR, True),
        (Contract.CONDITIONAL, None, True),
    ],
)
def test_the_contract_says_what_may_be_repeated(contract: Contract, remembers: timedelta | None, again: bool) -> None:
    """R36: what may not be sent twice is overdue as soon as it may have been sent; it is sent a first time."""
    promise, runs = Promise(contract, remembers), [run(Verdict.OPEN)]
    assert may_send([], promise, NOW) and may_send([run(Verdict.UNSENT)], promise, NOW)
    assert may_send(runs, promise, NOW) is again
    assert standing_of(runs, promise, NOW) is (Standing.UNKNOWN if again else Standing.OVERDUE)
    if remembers is None:
        assert promise.left(runs, NOW) is None
        assert promise.forgotten(runs, NOW, NOW)


def test_what_is_rejected_is_not_sent_again() -> None:
    """R35: what was refused for want of money could be accepted later, when another intent has taken its place."""
    for verdict in (Verdict.NOT_DONE, Verdict.REFUSED):
        assert standing_of([run(verdict)], KEYED, NOW) in KNOWN
        assert not may_send([run(verdict)], KEYED, NOW)


def test_what_a_run_proves_follows_from_its_outcome() -> None:
    """R35, R37: a success, a recorded refusal, a refusal, nothing sent, or nothing known."""
    succeeded: Outcome[str] = Succeeded(response="201", key="k", attempts=(ATTEMPT,))
    outcomes = [succeeded, rejected(replayed=True), rejected(), *map(unknown, Sent)]
    assert [verdict_of(outcome) for outcome in outcomes] == [
        Verdict.DONE, Verdict.REFUSED, Verdict.NOT_DONE, Verdict.UNSENT, Verdict.OPEN, Verdict.OPEN
    ]  # fmt: skip


def test_a_caller_is_told_no_more_than_is_known() -> None:
    """I6, R37: beside a run that had the effect, or may have, a refusal is unknown, and nothing counts as unsent."""
    for before in ([run(Verdict.OPEN)], [run(Verdict.DONE), run(Verdict.NOT_DONE)]):
        refused = told(rejected(), before)
        assert isinstance(refused, Unknown)
        assert (refused.sent, refused.response, refused.key, refused.stop) == (Sent.YES, "402", "k", Stop.ANSWERED)
        lost = told(unknown(Sent.NO), before)
        assert isinstance(lost, Unknown) and lost.sent is Sent.MAYBE
    for outcome in (rejected(replayed=True), unknown(Sent.YES), Succeeded(response="", key="k", attempts=(ATTEMPT,))):
        assert told(outcome, before) is outcome
    for others in ([], [run(Verdict.UNSENT), run(Verdict.NOT_DONE)], [*before, run(Verdict.REFUSED)]):
        assert told(rejected(), others) == rejected()
