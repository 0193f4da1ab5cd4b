"""The life of a record: the table cell by cell, standings at every instant, and the one judgment of a claim."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.records import ANSWER, HEAD, ME, MINE, NOW, OTHER, SECOND, THEM, near, record, records, standing_so
from twicesafe.core.lifecycle import AFTER_CRASH, TRANSITIONS, Event, Standing, Verdict, abandoned, decide, standing
from twicesafe.core.record import Effects, Instant, Record, RecordState
from twicesafe.errors import FingerprintAlgorithmError

EVENTS = list(Event)

# One row for each event, one column for each standing in the order of the enum; "." is a refusal.
TABLE = """
                           free     claimed    stale      answered   completed  tombstone  unknown
claim                      claimed  .          claimed    .          .          .          .
renew                      .        claimed    claimed    claimed    .          .          .
start-answer               .        claimed    answered   .          .          .          .
complete                   .        completed  completed  completed  .          .          completed
release                    .        free       free       .          .          .          free
hold                       .        unknown    unknown    unknown    .          .          .
settle                     .        .          .          tombstone  .          .          completed
lease-ends                 .        stale      .          .          .          .          .
lease-ends,-answer-begun   .        answered   .          .          .          .          .
body's-retention-ends      .        .          .          .          tombstone  .          .
key's-retention-ends       .        .          .          .          free       free       .
"""

CELLS = [
    (Standing(where), Event(row[0].replace("-", " ")), None if goal == "." else Standing(goal))
    for lines in [TABLE.strip().splitlines()]
    for row in [line.split() for line in lines[1:]]
    for where, goal in zip(lines[0].split(), row[1:], strict=True)
]


# --- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "event", "goal"), CELLS)
def test_each_cell_of_the_table(where: Standing, event: Event, goal: Standing | None) -> None:
    """I1, I3, I5, I6, R13: of every standing and event, what comes of it, and that everything else is refused."""
    assert TRANSITIONS[where].get(event) is goal


def test_the_table_is_whole() -> None:
    """R11: every standing and every event is in the table above, and nothing can write to the one in the code."""
    assert [(where, event) for event in Event for where in Standing] == [(where, event) for where, event, _ in CELLS]
    assert set(TRANSITIONS) == set(Standing)
    with pytest.raises(TypeError):
        TRANSITIONS[Standing.FREE] = {}  # type: ignore[index]


def test_a_completed_record_is_moved_by_time_alone() -> None:
    """I5: nobody changes a completed record or its tombstone; only its retention ends."""
    by_time = {Event.BODY_ENDS, Event.KEY_ENDS}
    assert TRANSITIONS[Standing.COMPLETED].keys() == by_time
    assert TRANSITIONS[Standing.TOMBSTONE].keys() == {Event.KEY_ENDS}


def test_an_unknown_outcome_is_not_moved_by_time() -> None:
    """I6: an unknown outcome waits for whoever knows; it neither ages nor is claimed."""
    assert not TRANSITIONS[Standing.UNKNOWN].keys() & {
        Event.CLAIM, Event.LEASE_ENDS, Event.ANSWER_CUT, Event.BODY_ENDS, Event.KEY_ENDS,
    }  # fmt: skip


DONE = {"state": RecordState.COMPLETED, "key_until": NOW + 3600 * SECOND, "body_until": NOW + 1800 * SECOND}

DEEDS: dict[Event, Callable[[Record], tuple[Record | None, Instant]]] = {
    Event.CLAIM: lambda row: (record(owner=ME, epoch=row.epoch + 1), NOW),
    Event.RENEW: lambda row: (row._replace(lease_until=NOW + SECOND), NOW),
    Event.START_ANSWER: lambda row: (row._replace(response=HEAD), NOW),
    Event.COMPLETE: lambda row: (row._replace(response=ANSWER, **DONE), NOW),
    Event.RELEASE: lambda row: (None, NOW),
    Event.HOLD: lambda row: (row._replace(state=RecordState.UNKNOWN), NOW),
    Event.SETTLE: lambda row: (
        row._replace(**DONE) if row.response is not None else row._replace(response=ANSWER, **DONE),
        NOW,
    ),
    Event.LEASE_ENDS: lambda row: (row, row.lease_until),
    Event.ANSWER_CUT: lambda row: (row._replace(response=HEAD), row.lease_until),
    Event.BODY_ENDS: lambda row: (row, row.body_until),
    Event.KEY_ENDS: lambda row: (row, row.key_until),
}
"""What each event does to a row, and when it is looked at then."""


@pytest.mark.parametrize(("where", "event", "goal"), [cell for cell in CELLS if cell[2] is not None])
def test_a_row_moves_as_the_table_says(where: Standing, event: Event, goal: Standing) -> None:
    """R12, R20, I12: the standing of a row after each event, by the store's clock, is the table's."""
    row = standing_so(where)
    assert standing(row, NOW) is where
    assert standing(*DEEDS[event](row)) is goal


# --- standings -------------------------------------------------------------------------------------------------------


def test_nothing_is_free() -> None:
    """R11: where there is no row, the key is free."""
    assert standing(None, NOW) is Standing.FREE


@pytest.mark.parametrize(
    ("row", "before", "at"),
    [
        (record(lease_until=NOW), Standing.CLAIMED, Standing.STALE),
        (record(lease_until=NOW, response=HEAD), Standing.CLAIMED, Standing.ANSWERED),
        (standing_so(Standing.COMPLETED, body_until=NOW), Standing.COMPLETED, Standing.TOMBSTONE),
        (standing_so(Standing.COMPLETED, body_until=NOW, key_until=NOW), Standing.COMPLETED, Standing.FREE),
        (standing_so(Standing.TOMBSTONE, body_until=0, key_until=NOW), Standing.TOMBSTONE, Standing.FREE),
    ],
)
def test_what_ends_now_has_ended(row: Record, before: Standing, at: Standing) -> None:
    """R20, I12, C4: a lease or retention holds up to its last microsecond, and needs no sweeper to be over."""
    assert standing(row, NOW - 1) is before
    assert standing(row, NOW) is at
    assert standing(row, NOW + 1) is at


@given(records, st.lists(near, min_size=2, max_size=6).map(sorted))
def test_time_moves_a_record_one_way(row: Record, instants: list[Instant]) -> None:
    """I12, I6: without an event a record only ages: claimed to stale or answered, completed to tombstone to free."""
    ages = {
        RecordState.CLAIMED: [Standing.CLAIMED, Standing.ANSWERED if row.response else Standing.STALE],
        RecordState.COMPLETED: [Standing.COMPLETED, Standing.TOMBSTONE, Standing.FREE],
        RecordState.UNKNOWN: [Standing.UNKNOWN],
    }[row.state]
    places = [ages.index(standing(row, now)) for now in instants]
    assert places == sorted(places)


def test_an_empty_answer_is_an_answer() -> None:
    """A3, D6: a completed record with an empty body replays; one without a body is a tombstone."""
    assert standing(standing_so(Standing.COMPLETED, response=ANSWER._replace(body=b"")), NOW) is Standing.COMPLETED
    assert standing(standing_so(Standing.COMPLETED, response=HEAD), NOW) is Standing.TOMBSTONE
    assert standing(standing_so(Standing.COMPLETED, response=None), NOW) is Standing.TOMBSTONE


# --- the judgment ----------------------------------------------------------------------------------------------------

# What a rival with the same request is told of each standing, by what the operation declared.
JUDGMENTS = """
               transactional  resumable    keyed        opaque
free           free           free         free         free
claimed        in-progress    in-progress  in-progress  in-progress
stale          take-over      take-over    take-over    hold
answered       settle         settle       settle       settle
completed      replay         replay       replay       replay
tombstone      gone           gone         gone         gone
unknown        unknown        unknown      unknown      unknown
"""

JUDGED = [
    (Standing(row[0]), Effects(effects), Verdict(verdict.replace("-", " ")))
    for lines in [JUDGMENTS.strip().splitlines()]
    for row in [line.split() for line in lines[1:]]
    for effects, verdict in zip(lines[0].split(), row[1:], strict=True)
]


@pytest.mark.parametrize(("where", "effects", "verdict"), JUDGED)
def test_each_judgment(where: Standing, effects: Effects, verdict: Verdict) -> None:
    """R11, R13, B5: what each standing means to another attempt, by what the lost run had declared."""
    assert decide(standing_so(where, effects=effects), MINE, ME, NOW) is verdict


@given(records, st.sampled_from([ME, THEM, b""]), near)
def test_another_request_is_refused_on_every_path(row: Record, owner: bytes, now: Instant) -> None:
    """I4, R11, F6, F8, K: a remembered key refuses another request: running, stale, answered, done, unknown, even one's
    own."""
    mine, other = (MINE, OTHER) if row.fingerprint == MINE.value else (OTHER, MINE)
    refused = decide(row, other, owner, now) is Verdict.MISMATCH
    assert refused == (standing(row, now) is not Standing.FREE)
    assert decide(row, mine, owner, now) is not Verdict.MISMATCH


@given(records, st.sampled_from([ME, THEM]), near)
def test_a_second_run_is_never_risked(row: Record, owner: bytes, now: Instant) -> None:
    """I1, I6, R13: a claim is given only where nothing is remembered, to its owner again, or after a run that declared
    a further run harmless."""
    verdict = decide(row, MINE, owner, now)
    where = standing(row, now)
    if verdict is Verdict.FREE:
        assert where is Standing.FREE
    elif verdict is Verdict.OWN:
        assert row.owner == owner and where in (Standing.CLAIMED, Standing.STALE)
    elif verdict is Verdict.TAKE_OVER:
        assert where is Standing.STALE and row.effects is not Effects.OPAQUE
        assert row.effects is Effects.TRANSACTIONAL or now < row.key_until


@given(records, near)
def test_only_a_kept_answer_is_replayed(row: Record, now: Instant) -> None:
    """I5, R20: a replay needs a completed record whose body is still kept."""
    replayed = decide(row, MINE, ME, now) is Verdict.REPLAY
    kept = row.state is RecordState.COMPLETED and row.response is not None and row.response.body is not None
    assert replayed == (kept and row.fingerprint == MINE.value and now < row.body_until and now < row.key_until)


def test_a_free_key_is_anybodys() -> None:
    """R20, C4: after its retention a key may name another request; without a row too."""
    assert decide(standing_so(Standing.FREE), OTHER, ME, NOW) is Verdict.FREE
    assert decide(None, OTHER, ME, NOW) is Verdict.FREE


@pytest.mark.parametrize("where", [Standing.CLAIMED, Standing.STALE])
def test_a_claim_knows_its_own_row(where: Standing) -> None:
    """B6: asked again after a lost reply, a claim finds its own owner token, even if its lease ended meanwhile."""
    assert decide(standing_so(where, owner=ME), MINE, ME, NOW) is Verdict.OWN
    assert decide(standing_so(where, owner=THEM), MINE, ME, NOW) is not Verdict.OWN


@pytest.mark.parametrize("effects", list(Effects))
def test_a_lost_run_is_not_repeated_after_its_keys_are_forgotten(effects: Effects) -> None:
    """R25, R27: past the key's retention providers may have forgotten derived keys too: only a transaction, which left
    nothing behind, is run again."""
    row = standing_so(Standing.STALE, effects=effects, key_until=NOW)
    verdict = decide(row, MINE, ME, NOW)
    assert verdict is (Verdict.TAKE_OVER if effects is Effects.TRANSACTIONAL else Verdict.HOLD)
    assert decide(row._replace(key_until=NOW + 1), MINE, ME, NOW) is AFTER_CRASH[effects]


def test_the_declaration_of_the_lost_run_decides() -> None:
    """R13: what is declared for the operation now changes nothing for what an older run may have done."""
    assert set(AFTER_CRASH) == set(Effects)
    assert [effects for effects in Effects if AFTER_CRASH[effects] is not Verdict.TAKE_OVER] == [Effects.OPAQUE]


@pytest.mark.parametrize("where", [where for where in Standing if where is not Standing.FREE])
def test_a_fingerprint_that_cannot_be_compared_decides_nothing(where: Standing) -> None:
    """I4: where only a newer release can compare, there is no verdict at all."""

    class OfANewerRelease:
        def matches(self, stored: bytes, /) -> bool:
            raise FingerprintAlgorithmError(stored)

    with pytest.raises(FingerprintAlgorithmError):
        decide(standing_so(where), OfANewerRelease(), ME, NOW)
    assert decide(None, OfANewerRelease(), ME, NOW) is Verdict.FREE


# --- claims that nobody asks for again -------------------------------------------------------------------------------


@given(records, st.integers(-2, 2))
def test_a_bystander_does_to_a_claim_what_the_next_attempt_would_or_nothing(found: Record, near_end: int) -> None:
    """R27, R13, I3: what ends an abandoned claim is what its own retry would have been told, never a run again."""
    for now in (found.lease_until + near_end, found.key_until + near_end):
        verdict = abandoned(found, now)
        asked = decide(found, MINE, b"nobody's", now) if found.fingerprint == MINE.value else None
        match standing(found, now):
            case Standing.ANSWERED:
                assert verdict is Verdict.SETTLE
            case Standing.STALE if asked is Verdict.TAKE_OVER and now >= found.key_until:
                assert verdict is Verdict.FREE
                assert found.effects is Effects.TRANSACTIONAL
            case Standing.STALE if asked is not None:
                assert verdict is (Verdict.HOLD if asked is Verdict.HOLD else None)
            case Standing.STALE:
                assert verdict in (None, Verdict.HOLD, Verdict.FREE)
            case _:
                assert verdict is None


@pytest.mark.parametrize("effects", Effects)
def test_nothing_stays_in_progress_for_ever(effects: Effects) -> None:
    """R27: whatever a stale claim declared, once its key's retention has ended somebody may end it."""
    lost = record(state=RecordState.CLAIMED, effects=effects, lease_until=NOW - 2, key_until=NOW - 1)
    assert abandoned(lost, NOW) is (Verdict.FREE if effects is Effects.TRANSACTIONAL else Verdict.HOLD)
