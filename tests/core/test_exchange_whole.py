"""The exchange as a whole: in a world where anything may happen at each step, and stopped after each step."""

from __future__ import annotations

from asyncio import CancelledError
from datetime import timedelta
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.records import ME, NOW, OTHER, THEM, record, standing_so
from tests.core.script import ALL, OWN, TRANSACTIONAL, Played, name_of, started, won
from twicesafe.core.capture import Raised, Responded
from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.exchange import unkeyed
from twicesafe.core.lifecycle import Standing, Verdict
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects
from twicesafe.core.steps import (
    FORWARD,
    Answer,
    Begin,
    Commit,
    Complete,
    Exchange,
    Flow,
    Forward,
    Hold,
    Notice,
    Propagate,
    Read,
    Release,
    Renew,
    Run,
    StartAnswer,
    Wait,
)
from twicesafe.errors import AmbiguousWriteError, LeaseLostError, StoreUnavailableError

LOST, AWAY, TAKEN = AmbiguousWriteError(), StoreUnavailableError(), LeaseLostError()

policies = st.builds(
    Policy,
    effects=st.sampled_from(Effects),
    unknown_on_error=st.booleans(),
    wait=st.sampled_from([timedelta(0), timedelta(milliseconds=30), timedelta(seconds=1)]),
)
rows = st.sampled_from(
    [
        None,
        *[standing_so(where, owner=owner) for where in Standing for owner in (ME, THEM)],
        *[standing_so(where, fingerprint=OTHER.value) for where in Standing],
    ]
)
told = {
    Verdict.REPLAY: standing_so(Standing.COMPLETED),
    Verdict.GONE: standing_so(Standing.TOMBSTONE),
    Verdict.IN_PROGRESS: record(),
    Verdict.MISMATCH: standing_so(Standing.COMPLETED),
    Verdict.UNKNOWN: standing_so(Standing.UNKNOWN),
}
raised = st.builds(
    Raised,
    st.sampled_from([ValueError(), CancelledError(), None]),
    st.sampled_from([None, True, False]),
    st.booleans(),
)
responded = st.builds(
    Responded,
    st.sampled_from([201, 302, 402, 401, 500, 503]),
    st.just(((b"x", b"1"),)),
    st.sampled_from([b"", b"body", None]),
    st.sampled_from([None, True, False]),
    st.sampled_from([False, False, True]),
    st.booleans(),
)
write = st.sampled_from([None, None, LOST, AWAY, TAKEN])

WORLD: dict[type, st.SearchStrategy[Any]] = {
    Claim: st.sampled_from([won(), won(), won(standing_so(Standing.STALE)), LOST, AWAY])
    | st.sampled_from(Verdict).filter(told.__contains__).map(lambda verdict: Existing(verdict, told[verdict], NOW)),
    Begin: st.sampled_from([None, AWAY]),
    Commit: write,
    Run: responded | raised,
    Complete: write,
    StartAnswer: write,
    Flow: responded | raised,
    Release: write,
    Renew: write,
    Hold: write,
    Read: st.builds(Found, rows, st.just(NOW)) | st.sampled_from([LOST, AWAY]),
    Wait: st.none(),
    Notice: st.none(),
}
"""What each step may meet."""


class Lived(Played):
    """A whole exchange, with what its steps met."""

    met: list[tuple[Any, Any]]


def live(generator: Exchange, data: st.DataObject) -> Lived:
    """Drive an exchange through whatever comes."""
    met: list[tuple[Any, Any]] = []
    answer: Any = None
    for _ in range(200):
        try:
            step = generator.throw(answer) if isinstance(answer, BaseException) else generator.send(answer)
        except StopIteration as stop:
            steps = [step for step, _ in met if not isinstance(step, Notice)]
            lived = Lived(steps, [step for step, _ in met if isinstance(step, Notice)], stop.value)
            lived.met = met
            return lived
        answer = data.draw(WORLD[type(step)], type(step).__name__)
        met.append((step, answer))
    raise AssertionError("an exchange that never ends")


def place(lived: Lived, kind: type) -> int:
    """Where the first step of a kind stands; past the end where there is none."""
    return next((at for at, step in enumerate(lived.steps) if type(step) is kind), len(lived.steps))


@settings(max_examples=400)
@given(policies, st.data())
def test_whatever_happens(policy: Policy, data: st.DataObject) -> None:
    """R10, R12, R14, I1 to I3, I6, I11: in any world one exchange runs at most once, only after its claim, writes only
    under its ownership, lets nothing out before it is recorded, and never tells less than the truth."""
    lived = live(started(policy), data)
    steps, result = lived.steps, lived.result
    outcomes = [(step, answer) for step, answer in lived.met if not isinstance(step, Notice)]
    runs = lived.all(Run)

    # One run, right after the claim that was won; no claim after it.
    assert len(runs) <= 1
    assert not lived.all(Begin) + lived.all(Commit)
    claimed = [answer for step, answer in outcomes if type(step) is Claim and type(answer) is Claimed]
    assert len(runs) == len(claimed)
    ran = place(lived, Run)
    assert all(type(step) in (Claim, Wait, *([] if runs else [Release])) for step in steps[:ran])
    assert all(type(step) not in (Claim, Run) for step in steps[ran + 1 :])

    # Every write is the owner's.
    for step in steps[ran:]:
        if type(step) in (Run, Complete, StartAnswer, Release, Renew, Hold):
            assert step.ownership == OWN

    # Waiting is bounded.
    assert sum(wait.microseconds for wait in lived.all(Wait)) <= policy.wait_us + 2_000_000

    if not runs:
        assert type(result) is Answer and result.error is None
        return
    outcome = outcomes[ran][1]
    written = [(type(step), answer) for step, answer in outcomes[ran + 1 :]]
    stands = [kind for kind, answer in written if answer is None]
    found_mine = any(
        kind is Read and type(answer) is Found and answer.record is not None and answer.record.owner == ME
        for kind, answer in written
    )

    # Nothing leaves before the record of it was written, insisted on, or is not needed.
    flowed = place(lived, Flow)
    if flowed < len(steps):
        assert any(type(step) in (Complete, StartAnswer, Release, Renew, Hold) for step in steps[ran:flowed])
        assert type(result) is not Answer, "no other answer after the first byte"
        assert len(lived.all(Flow)) == 1
    if type(result) is Forward and policy.effects is Effects.TRANSACTIONAL:
        assert Complete in stands or found_mine or lived.all(Release)
    if type(result) is Forward:
        assert lived.all(Complete) + lived.all(Release) + lived.all(StartAnswer) + lived.all(Renew) + lived.all(Hold)

    # What may have been done is not forgotten.
    if policy.effects is Effects.OPAQUE and type(outcome) is Raised and outcome.entered is not False:
        assert not lived.all(Release)
        assert lived.all(Complete) + lived.all(Hold)
    if type(outcome) is Raised and policy.effects is not Effects.TRANSACTIONAL:
        free = outcome.entered is False and claimed[0].previous is None
        assert bool(lived.all(Release)) == free, "what may have begun stays bound to its request"
    if lived.all(Release):
        assert not lived.all(Complete) + lived.all(StartAnswer) + lived.all(Hold), "forgotten is forgotten"

    # An exception is never swallowed, and nothing is made up.
    end = next((answer for step, answer in outcomes[ran + 1 :] if type(step) is Flow), outcome)
    if type(end) is Raised and end is not outcome and end.client_gone:
        assert result is FORWARD, "nobody is there who would see it"
    elif type(end) is Raised:
        assert type(result) in (Propagate, Answer)
        if end.error is not None:
            assert result.error is end.error
    else:
        assert type(result) in (Forward, Answer)

    # What went wrong with a write after the run is told.
    if any(answer in (LOST, AWAY, TAKEN) and kind is not Read for kind, answer in written):
        assert any(notice.loud for notice in lived.notices) or Complete in stands or StartAnswer in stands


@given(st.data())
def test_whatever_happens_without_a_key(data: st.DataObject) -> None:
    """R3, R23: without a key too, at most one run, and no success is sent whose commit is in doubt."""
    lived = live(unkeyed(TRANSACTIONAL), data)
    assert len(lived.all(Run)) <= 1
    assert not lived.all(Claim) + lived.all(Complete) + lived.all(Release) + lived.all(Hold) + lived.all(StartAnswer)
    outcome = dict(lived.met[:2]).get(Run(None, None))
    if type(lived.result) is Forward and outcome.status < 400 and outcome.entered is True and not outcome.repeatable:
        assert [answer for step, answer in lived.met if type(step) is Commit] == [None]


# --- stopped after each step -----------------------------------------------------------------------------------------

CHARGED = Responded(201, (), b"charged", True)
STREAM = CHARGED._replace(body=None, streaming=True)
RUNNING = Existing(Verdict.IN_PROGRESS, record(), NOW)
NOTHING = Found(None, NOW)

SCRIPTS = {
    "recorded": [won(), CHARGED, None],
    "released": [won(), CHARGED._replace(status=503), None],
    "recorded at last": [won(standing_so(Standing.STALE)), CHARGED, AWAY, LOST, AWAY, None],
    "never recorded": [won(), CHARGED, AWAY, AWAY, AWAY, AWAY, AWAY],
    "late": [won(), CHARGED, TAKEN, NOTHING],
    "claimed at last": [LOST, AWAY, won(), CHARGED, None],
    "waited": [RUNNING, RUNNING, won(), CHARGED, None],
    "raised": [won(), Raised(ValueError(), True), None],
    "torn": [won(), Raised(CancelledError(), True), None],
    "streamed": [won(), STREAM, None, CHARGED, None],
    "stream broke": [won(), STREAM, None, Raised(None, True), None],
    "stream left": [won(), STREAM, None, Raised(None, True, client_gone=True), None],
    "stream late": [won(), STREAM, TAKEN, NOTHING],
    "commit lost": [won(), CHARGED, LOST, NOTHING, NOTHING, AWAY, NOTHING],
}


def advance(policy: Policy, script: list[Any], count: int) -> tuple[Exchange, list[Any]] | None:
    """An exchange stopped after its first `count` steps, and these; None where it has fewer."""
    generator = started(policy)
    answers = iter(script)
    steps: list[Any] = []
    answer: Any = None
    while len(steps) < count:
        try:
            step = generator.throw(answer) if isinstance(answer, BaseException) else generator.send(answer)
        except StopIteration:
            return None
        steps.append(step)
        answer = None if isinstance(step, Notice | Wait) else next(answers, None)
    return generator, steps


def cuts(policy: Policy, script: list[Any]) -> list[tuple[Exchange, list[Any]]]:
    """The exchange stopped after no step, after its first, and so on to its last."""
    stopped = iter(advance(policy, script, count) for count in range(100))
    return list(takewhile(lambda cut: cut is not None, stopped))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [*ALL, Policy(wait=timedelta(seconds=1))], ids=name_of)
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_stopped_after_any_step(policy: Policy, script: list[Any]) -> None:
    """R13, R42, A1: an exchange can be closed after step n for every n; it asks for nothing while it is closed, and
    has done the same until then as one that goes on."""
    every = cuts(policy, script)
    whole = every[-1][1]
    assert [len(steps) for _, steps in every] == list(range(len(whole) + 1))
    assert len(whole) >= 2
    for generator, steps in every:
        # A step yielded while it is being closed would be a RuntimeError.
        generator.close()
        assert list(generator) == [], "it is over"
        assert [type(step) for step in steps] == [type(step) for step in whole[: len(steps)]]


@pytest.mark.parametrize("policy", ALL, ids=name_of)
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("error", [ZeroDivisionError, CancelledError], ids=lambda error: error.__name__)
def test_an_error_of_the_driver_comes_through(policy: Policy, script: list[Any], error: type[BaseException]) -> None:
    """R14: what is no StoreError is neither swallowed nor answered by a further step, whichever step met it."""
    for generator, _ in cuts(policy, script):
        with pytest.raises(error):
            generator.throw(error())
