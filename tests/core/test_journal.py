"""The journal of an operation's steps: how it is written, a line for each step, and read again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.journal import CALL, DONE, OPEN, PHASE, UNSENT, Entry, Journal
from twicesafe.errors import DefinitionChangedError

RESERVE = Entry("reserve", PHASE, DONE, "1")
SENT = Entry("charge", CALL, OPEN, "", 77)
CHARGED = Entry("charge", CALL, DONE, '"ch_1"', 77)
BEFORE = json.dumps([1, [RESERVE, SENT]]).encode()
"""As a release wrote it that wrote all entries anew at each step."""


def taken(*entries: Entry, data: bytes = b"", journal: Journal | None = None) -> tuple[Journal, bytes]:
    """A journal that took these steps, and what its record holds then."""
    journal = journal or Journal()
    for entry in entries:
        data += journal.move(entry).addition
        journal.add(entry)
    return journal, data


entries = st.lists(
    st.builds(
        Entry,
        st.text(min_size=1, max_size=5),
        st.sampled_from([PHASE, CALL]),
        st.just(DONE),
        st.text(max_size=5),
        st.integers(0),
    ),
    max_size=3,
    unique_by=lambda entry: entry.name,
)


@given(entries, entries)
def test_what_was_added_line_by_line_is_read_as_it_was(first: list[Entry], second: list[Entry]) -> None:
    """R24, I10: whatever steps are called and gave, their additions one behind the other are the whole journal."""
    steps = [entry for entry in first if entry.name not in {other.name for other in second}] + second
    journal, data = taken(*steps)
    assert Journal.read(data or None, journal.point).entries == tuple(steps)
    assert data == journal.written()
    assert data.isascii() and data.count(b"\n") == len(steps)


def test_an_addition_does_not_grow_with_what_is_there() -> None:
    """R24: the thousandth step writes as much as the first."""
    journal, _ = taken(*(Entry(f"step {number:04}", PHASE, DONE, "1") for number in range(1000)))
    further = Entry("step 1000", PHASE, DONE, "1")
    assert journal.move(further).addition == Journal().move(further).addition


def test_an_open_call_is_taken_the_place_of() -> None:
    """I10, R25: what a call came to stands where it was open, and the point has moved without a step more."""
    journal, data = taken(RESERVE, SENT, SENT._replace(result=UNSENT), SENT, CHARGED)
    assert Journal.read(data, journal.point).entries == (RESERVE, CHARGED)
    assert journal.point == "2 done charge"


def test_a_move_changes_nothing_until_it_is_written() -> None:
    """I10: a write that failed leaves the journal where it was, so that the same is asked for again."""
    journal, _ = taken(RESERVE)
    assert journal.move(SENT) == journal.move(SENT)
    assert journal.entries == (RESERVE,)


def test_a_journal_of_an_earlier_release_is_read_and_gone_on_with() -> None:
    """R24: operations that are under way survive an upgrade; what they do next is added behind what was there."""
    journal = Journal.read(BEFORE, "2 open charge")
    assert journal.entries == (RESERVE, SENT)
    journal, data = taken(CHARGED, Entry("end", PHASE, DONE, "2"), data=BEFORE, journal=journal)
    assert Journal.read(data, journal.point).entries == (RESERVE, CHARGED, Entry("end", PHASE, DONE, "2"))


@pytest.mark.parametrize(
    "data",
    [None, b"", b"\n", taken(RESERVE)[1], taken(RESERVE, SENT, CHARGED)[1], taken(SENT)[1], BEFORE[:-1], b"[2,[]]"],
)
def test_a_journal_that_does_not_end_at_its_records_point_is_not_gone_on_with(data: bytes | None) -> None:
    """I6, I10: where a line is missing, steps would be taken twice; it is held for a human."""
    with pytest.raises(DefinitionChangedError):
        Journal.read(data, "2 open charge")


def test_without_a_point_there_is_nothing_behind() -> None:
    """I10: steps that are to be taken anew begin a journal anew."""
    assert Journal.read(taken(RESERVE)[1], None).entries == Journal.read(None, None).entries == ()
