"""The steps of an operation, driven by hand: what a call that broke off does next, and until when it is sent again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.core.records import NOW, SECOND
from tests.core.records import record as claimed
from twicesafe.core.claims import Found
from twicesafe.core.journal import CALL, DONE, OPEN, PHASE, UNSENT, Entry, Journal
from twicesafe.core.phases import (
    Advance,
    CallContract,
    Keep,
    Phases,
    Progress,
    Send,
    Sent,
    Taken,
    call,
    phase,
)
from twicesafe.core.record import Ownership
from twicesafe.core.remembered import LONGEST_MARGIN
from twicesafe.core.steps import Notice, Wait
from twicesafe.errors import (
    AmbiguousWriteError,
    CallRefusedError,
    CallUnknownError,
    ConfigurationError,
    LeaseLostError,
    StoreUnavailableError,
)

OWN = claimed().ownership
DAY = timedelta(days=1)
DAY_US = 86_400 * SECOND
MARGIN_US = LONGEST_MARGIN // timedelta(microseconds=1)
OPENED = Entry("charge", CALL, OPEN, "", NOW)
ANSWERED = Sent(DONE, '"ch_1"', "ch_1")


def progress(*entries: Entry, own: Ownership = OWN, now: int = NOW) -> Progress:
    """Of a run that found these entries."""
    return Progress(own, now, Journal(entries))


def play(steps: Phases, *script: Any) -> tuple[str, list[Any], Taken]:
    """Answer each step but Keep, notices and waits with the next of `script`, an exception by raising it.

    Gives the kinds of the steps, the steps, and what they came to. What they raise has the kinds in a note.
    """
    answers, asked = iter(script), []
    try:
        step = next(steps)
        while True:
            answer = None
            if not isinstance(step, Notice | Wait):
                asked.append(step)
                answer = None if type(step) is Keep else next(answers)
            step = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
    except StopIteration as end:
        assert not list(answers)
        return _kinds(asked), asked, end.value
    except Exception as error:
        assert not list(answers)
        error.add_note(_kinds(asked))
        raise


def _kinds(asked: list[Any]) -> str:
    return " ".join(type(step).__name__ for step in asked)


@pytest.mark.parametrize(
    ("remembers", "last"),
    [
        (DAY, DAY_US - MARGIN_US),
        (timedelta(minutes=10), 540 * SECOND),
        (timedelta(minutes=5), 270 * SECOND),
        (timedelta(seconds=2), 1_800_000),
        (timedelta(microseconds=9), 9),
    ],
)
def test_it_is_sent_again_as_long_as_its_key_is_known_on_arrival(remembers: timedelta, last: int) -> None:
    """R25, I12: up to a margin before the window ends, and from then on not by a microsecond."""
    contract = CallContract(remembers)
    assert contract.may_send_again(NOW, NOW) and contract.may_send_again(NOW, NOW + last - 1)
    assert not contract.may_send_again(NOW, NOW + last)
    assert not contract.may_send_again(NOW, NOW + (DAY_US * 1000))


def test_what_remembers_no_keys_is_never_sent_the_same_again() -> None:
    """R25: not even at once."""
    assert not CallContract().may_send_again(NOW, NOW)
    with pytest.raises(CallUnknownError, match="remembers no keys"):
        play(call(progress(OPENED), "charge", CallContract()), None)


def test_the_window_counts_from_the_first_send() -> None:
    """R25, I10: sent again, it stands there as of when it was first sent, whoever sends and however often."""
    run = progress(OPENED, now=NOW + 3600 * SECOND)
    kinds, steps, taken = play(call(run, "charge", CallContract(DAY)), None, NOW + 3600 * SECOND, ANSWERED, None)
    assert kinds == "Keep Advance Now Send Advance"
    assert taken.value == "ch_1"
    assert run.journal.entries == (Entry("charge", CALL, DONE, '"ch_1"', NOW),)
    assert steps[1].seen == steps[1].point == "1 open charge"
    assert steps[3] == Send(DAY_US - MARGIN_US - 3600 * SECOND), "it has to begin within what is left of the window"


def test_a_first_send_is_as_old_as_its_claim() -> None:
    """R25: it is journalled no later than it is sent, so the window never counts too long."""
    run = progress(now=NOW + 5)
    kinds, steps, _ = play(call(run, "charge", CallContract(DAY)), None, ANSWERED, None)
    assert kinds == "Keep Advance Send Advance"
    assert run.journal.entries[0].at == NOW + 5
    assert steps[1].seen is None and steps[2:3] == [Send()]


def test_what_provably_never_left_begins_its_window_anew() -> None:
    """R25: nobody has seen its key, so nobody can have forgotten it."""
    run = progress(OPENED._replace(result=UNSENT), now=NOW + 2 * DAY_US)
    kinds, _, _ = play(call(run, "charge", CallContract(DAY)), None, ANSWERED, None)
    assert kinds == "Keep Advance Send Advance"
    assert run.journal.entries[0].at == NOW + 2 * DAY_US


def test_the_clock_is_the_last_thing_that_is_asked_before_it_is_sent_again() -> None:
    """R25, I3: a slow look-up and a slow store are over by then, and who lost the claim reads no clock."""
    contract = CallContract(DAY, looks_up=True)
    kinds, _, _ = play(call(progress(OPENED), "charge", contract), Sent(OPEN), None, NOW + SECOND, ANSWERED, None)
    assert kinds == "LookUp Keep Advance Now Send Advance"
    with pytest.raises(LeaseLostError) as lost:
        play(call(progress(OPENED), "charge", contract), Sent(OPEN), LeaseLostError("lost"))
    assert lost.value.__notes__ == ["LookUp Keep Advance"]


def test_who_lost_the_claim_writes_nothing_down_and_sends_nothing() -> None:
    """R25, I3: the lease is made to last before the call is written down, for whoever stands still behind that is late,
    and proves that it sent nothing."""
    run = progress()
    steps = call(run, "charge", CallContract(DAY))
    assert next(steps) == Keep()
    with pytest.raises(LeaseLostError):
        steps.throw(LeaseLostError("lost"))
    late = CallRefusedError("too late")
    run = progress()
    with pytest.raises(CallRefusedError):
        play(call(run, "charge", CallContract(DAY)), None, Sent(OPEN, error=late, unsent=True), None)
    assert run.journal.entries == (Entry("charge", CALL, OPEN, UNSENT, NOW),)
    assert not run.open_call


def test_past_the_window_nothing_is_sent() -> None:
    """R25, I6: it is held, and the operation cannot end as done."""
    run = progress(OPENED)
    with pytest.raises(CallUnknownError, match="may no longer remember") as held:
        play(call(run, "charge", CallContract(DAY)), None, NOW + DAY_US - MARGIN_US)
    assert held.value.__notes__ == ["Keep Advance Now"]
    assert run.open_call
    with pytest.raises(CallUnknownError):
        run.check_end()


def test_what_was_looked_up_needs_no_window() -> None:
    """R25: found, it is recorded as of when it was sent; found not done, it is sent as for the first time."""
    run = progress(OPENED, now=NOW + 9 * DAY_US)
    contract = CallContract(DAY, looks_up=True)
    assert play(call(run, "charge", contract), ANSWERED, None)[0] == "LookUp Advance"
    assert run.journal.entries == (Entry("charge", CALL, DONE, '"ch_1"', NOW),)
    run = progress(OPENED, now=NOW + 9 * DAY_US)
    kinds, _, _ = play(call(run, "charge", contract), Sent(OPEN, unsent=True), None, ANSWERED, None)
    assert kinds == "LookUp Keep Advance Send Advance"
    assert run.journal.entries[0].at == NOW + 9 * DAY_US


@pytest.mark.parametrize("remembers", [timedelta(0), -DAY, 3600])
def test_a_memory_is_a_duration(remembers: Any) -> None:
    """R25: what is none is refused where it is declared."""
    with pytest.raises(ConfigurationError):
        CallContract(remembers)


# --- a phase whose commit was lost ------------------------------------------------------------------------------------

FIRST = Entry("reserve", PHASE, DONE, "1")
AFTER = "1 done reserve"
LOST = AmbiguousWriteError("lost")


def row(point: str | None, **changes: Any) -> Found:
    """A record that stands at this point."""
    return Found(claimed(recovery_point=point, **changes), NOW)


def test_a_commit_that_was_made_is_not_made_again() -> None:
    """I10: the answer was lost; the point says that it stands, and the next step goes on behind it."""
    run = progress()
    kinds, steps, taken = play(phase(run, "reserve"), None, ("1", 1), None, LOST, row(AFTER))
    assert kinds == "BeginPhase RunPhase Advance CommitPhase Read"
    assert taken.value == 1 and run.journal.entries == (FIRST,)
    assert steps[2] == Advance(OWN, None, AFTER, Journal([FIRST]).written())


def test_a_commit_that_was_not_made_runs_its_phase_again() -> None:
    """I10: from the same point, with the same addition, so that only one of two can stand."""
    run = progress()
    script = [None, ("1", 1), None, LOST, row(None), None, ("1", 1), None, None]
    kinds, steps, _ = play(phase(run, "reserve"), *script)
    assert kinds.split().count("RunPhase") == 2
    assert steps[2] == steps[7] and type(steps[7]) is Advance
    assert run.journal.entries == (FIRST,)


@pytest.mark.parametrize("found", [row(AFTER, epoch=2), row("2 done pay"), Found(None, NOW)])
def test_a_commit_that_somebody_else_has_gone_on_from_is_theirs(found: Found) -> None:
    """I3, I10: whose claim it is no longer, or whose point is elsewhere, takes no further step."""
    run = progress()
    with pytest.raises(LeaseLostError):
        play(phase(run, "reserve"), None, ("1", 1), None, LOST, found)
    assert run.journal.entries == ()
    with pytest.raises(LeaseLostError):
        play(phase(run, "pay"))


def test_a_commit_that_cannot_be_read_back_is_left_to_the_next_attempt() -> None:
    """I10, A7: nothing is guessed."""
    run = progress()
    away = [StoreUnavailableError("away")] * 4
    with pytest.raises(StoreUnavailableError) as met:
        play(phase(run, "reserve"), None, ("1", 1), None, LOST, *away)
    assert met.value.__notes__ == ["BeginPhase RunPhase Advance CommitPhase Read Read Read Read"]
    assert run.journal.entries == ()
