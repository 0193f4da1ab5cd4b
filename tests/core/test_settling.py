"""What becomes of an unknown outcome once somebody knows it, decided by hand."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from tests.core.records import ANSWER, NOW, SECOND, standing_so
from twicesafe.core.journal import CALL, DONE, LOST, OPEN, PHASE, REJECTED, UNSENT, Entry, Journal
from twicesafe.core.lifecycle import Standing
from twicesafe.core.record import Effects, Record, StoredResponse
from twicesafe.core.settling import Reopen, Settle, may_end, open_call, reopen, settle, steps_of, told
from twicesafe.errors import ConfigurationError, DefinitionChangedError

BEFORE = Entry("reserve", PHASE, DONE, "1")


def ending(standing: str, result: str = "") -> Journal:
    """A phase, and then a call that stands so."""
    return Journal((BEFORE, Entry("charge", CALL, standing, result, NOW)))


def held(journal: Journal | None = None) -> Record:
    """An operation that is held as unknown; with a journal, one that takes steps."""
    if journal is None:
        return standing_so(Standing.UNKNOWN)
    data = journal.written() if journal.entries else None
    return standing_so(
        Standing.UNKNOWN, effects=Effects.RESUMABLE, recovery_point=journal.point, recovery_data=data, epoch=3
    )


@pytest.mark.parametrize("journal", [ending(OPEN), ending(OPEN, UNSENT), ending(LOST)])
def test_a_call_that_was_done_is_recorded_with_its_result(journal: Journal) -> None:
    """R24, R26: under its name and as of when it was sent; the steps before it stay, and no call is open any more."""
    further = told(journal, '"ch_1"')
    assert further.entries == (BEFORE, Entry("charge", CALL, DONE, '"ch_1"', NOW))
    assert open_call(further) is None


def test_a_call_that_was_not_done_is_sent_by_the_next_attempt() -> None:
    """R25, R26: it stands as one that never left, so what the other system remembers does not matter."""
    further = told(ending(OPEN), None)
    assert further.entries == (BEFORE, Entry("charge", CALL, OPEN, UNSENT, NOW))
    assert further.point != ending(OPEN).point, "a store sees that it has moved"


def test_nobody_says_not_done_of_a_call_that_was_carried_out() -> None:
    """R25, I6: only its result is missing, and sent again it would be a second charge."""
    with pytest.raises(ConfigurationError, match="'charge' was carried out"):
        told(ending(LOST), None)


@pytest.mark.parametrize("journal", [Journal(), Journal((BEFORE,)), ending(DONE, "1"), ending(REJECTED, "no")])
@pytest.mark.parametrize("result", ["1", None])
def test_without_an_open_call_nothing_is_told(journal: Journal, result: str | None) -> None:
    """R24, I10: what a step gave stays as it was recorded."""
    assert open_call(journal) is None
    with pytest.raises(DefinitionChangedError, match="no open call"):
        told(journal, result)


@pytest.mark.parametrize(
    ("journal", "as_done", "as_not_done"),
    [
        (None, True, True),
        (Journal(), True, True),
        (Journal((BEFORE,)), True, False),
        (ending(DONE, "1"), True, False),
        (ending(REJECTED, "no"), True, False),
        (ending(OPEN), False, False),
        (ending(OPEN, UNSENT), False, False),
        (ending(LOST), False, False),
    ],
)
def test_what_a_person_may_end(journal: Journal | None, as_done: bool, as_not_done: bool) -> None:
    """R26, I6: steps that were taken are never taken again, and an open call is settled before its operation is."""
    assert (may_end(journal, done=True), may_end(journal, done=False)) == (as_done, as_not_done)


@pytest.mark.parametrize("response", [ANSWER, None])
def test_a_settlement_is_kept_as_long_as_its_claim_meant_to(response: object) -> None:
    """R10, R26: from now on; and conditioned on the claim that was seen."""
    record = held()
    retention = 3605 * SECOND
    assert settle(record, response) == Settle(record.ownership, response, retention, retention)  # type: ignore[arg-type]


def test_a_settlement_keeps_the_lines_that_answers_are_kept_with() -> None:
    """R17, R26: what belongs to one connection or one exchange is left away, as from an answer that was recorded."""
    lines = ((b"Connection", b"x-own"), (b"X-Own", b"1"), (b"Transfer-Encoding", b"chunked"), (b"Location", b"/1"))
    settled = settle(
        held(), StoredResponse(HTTPStatus.CREATED, (*lines, (b"Date", b"Mon"), (b"Set-Cookie", b"a=b")), b"x")
    ).response
    assert settled == StoredResponse(201, ((b"Location", b"/1"), (b"Set-Cookie", b"a=b")), b"x")
    assert settled is not None
    assert type(settled.status) is int


def test_a_settlement_is_never_kept_for_no_time() -> None:
    """R10: whatever a record says of its own retention."""
    record = held()._replace(key_until=NOW - 9 * SECOND)
    assert settle(record, ANSWER)[2:] == (1, 1)


@pytest.mark.parametrize("journal", [Journal(), ending(OPEN)])
def test_an_operation_is_let_go_on_from_where_it_was_seen(journal: Journal) -> None:
    """I10: on condition that its recovery point still is where it was; with no steps taken it begins at its first."""
    record = held(journal)
    assert reopen(record, journal) == Reopen(
        record.ownership, record.recovery_point, journal.point, record.recovery_data
    )
    assert record.recovery_point != reopen(record, journal.having(Entry("charge", CALL, DONE, "1"))).point


def test_only_operations_that_take_steps_have_a_journal() -> None:
    """R24: of the others all that can be said is what the whole came to."""
    assert steps_of(held()) is None
    found = steps_of(held(ending(OPEN)))
    assert found is not None
    assert found.entries == ending(OPEN).entries


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (StoredResponse(204, (), b"x"), "has no body"),
        (StoredResponse(205, (), b"x"), "has no body"),
        (StoredResponse(304, (), b"x"), "has no body"),
        (StoredResponse(200, ((b"Content-Length", b"2"),), b"x"), "Content-Length"),
        (StoredResponse(200, ((b"content-length", b"1"), (b"content-length", b"one")), b"x"), "Content-Length"),
        (StoredResponse(101, (), b""), "between 200 and 599"),
        (StoredResponse(200, ((b"x y", b"1"),), b""), "header line"),
        (StoredResponse(200, ((b"", b"1"),), b""), "header line"),
        (StoredResponse(200, ((b"x", b"1\r\nSet-Cookie: a=b"),), b""), "header line"),
        (StoredResponse(200, ((b"x", b"\0"),), b""), "header line"),
        (StoredResponse(200, (("x", "1"),), b""), "in bytes"),  # type: ignore[arg-type]
        (StoredResponse(200, (), "{}"), "is bytes"),  # type: ignore[arg-type]
    ],
)
def test_nothing_is_settled_by_an_answer_that_no_server_can_send(answer: StoredResponse, why: str) -> None:
    """R26: it stays unknown, and whoever gives such an answer is told; no retry would ever get one."""
    with pytest.raises(ConfigurationError, match=why):
        settle(held(), answer)
    assert settle(held(), StoredResponse(204, (), b"")).response == StoredResponse(204, (), b"")
    assert settle(held(), StoredResponse(304, ((b"content-length", b"7"),), b"")).response is not None
