"""The exchange after the run: what is recorded or released, and what happens when that fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.records import MINE, NOW, OTHER, SECOND, THEM, record, standing_so
from tests.core.script import (
    ALL,
    CHARGED,
    KEYED,
    LEASED,
    LOCATION,
    OPAQUE,
    OWN,
    RESUMABLE,
    TRANSACTIONAL,
    Played,
    claim_of,
    name_of,
    play,
    started,
    won,
)
from twicesafe.core.capture import Raised, Responded
from twicesafe.core.claims import Found
from twicesafe.core.exchange import exchange
from twicesafe.core.lifecycle import Standing
from twicesafe.core.policy import REFUSED_BEFORE_WORK, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.core.steps import FORWARD, Answer, Complete, Hold, Propagate, Read, Release, Renew, Wait
from twicesafe.errors import (
    AmbiguousWriteError,
    CommitRefusedError,
    FingerprintAlgorithmError,
    LeaseLostError,
    StoreError,
    StoreUnavailableError,
)

LOST, AWAY, TAKEN = AmbiguousWriteError(), StoreUnavailableError(), LeaseLostError()
STORE_ERRORS = pytest.mark.parametrize("error", [LOST, AWAY, TAKEN], ids=["lost", "away", "taken"])
UNKEPT = Responded(201, (), None)


def answered(status: int, **more: Any) -> Responded:
    """What a handler answered."""
    return Responded(status, (), b"", **more)


def ran(policy: Policy, outcome: Responded, *script: object) -> Played:
    """An exchange that claimed and ran."""
    return play(started(policy), won(), outcome, *script)


# --- what is recorded ------------------------------------------------------------------------------------------------


def test_the_answer_is_recorded_as_it_will_be_replayed() -> None:
    """R17, R20, D2, D3: status, body and remembered lines, with the retentions of the policy."""
    step = ran(OPAQUE, CHARGED, None).only(Complete)
    assert step == Complete(OWN, StoredResponse(201, LOCATION, b"charged"), OPAQUE.key_us, OPAQUE.body_us, True)
    cookies = ran(OPAQUE.but(store_cookies=True), CHARGED, None).only(Complete)
    assert cookies.response.headers == (*LOCATION, (b"set-cookie", b"a=1"))


@pytest.mark.parametrize("status", [200, 201, 202, 204, 302, 400, 402, 403, 404, 409, 422, 500, 501, 502, 504])
@pytest.mark.parametrize("policy", ALL, ids=name_of)
def test_every_outcome_is_recorded_by_default(policy: Policy, status: int) -> None:
    """R15, B5, E2: failures included, unless the handler did nothing for certain."""
    for entered in (None, True):
        played = ran(policy, answered(status, entered=entered), None)
        assert played.names == "Claim Run Complete"
        assert played.only(Complete).response.status == status
        assert played.result is FORWARD


def test_a_body_that_is_not_kept_is_recorded_as_done() -> None:
    """R18, A4: an answer over the limit is recorded without its body, so that no retry runs again."""
    played = ran(OPAQUE, UNKEPT, None)
    assert played.only(Complete).response == StoredResponse(201, (), None)
    assert played.result is FORWARD


@pytest.mark.parametrize(("status", "kept"), [(201, True), (302, True), (400, False), (402, True), (500, False)])
def test_a_failure_answer_rolls_its_effects_back(status: int, kept: bool) -> None:
    """R15, R23, H2: a stored failure implies that its transaction's effects are gone, or kept by the policy."""
    played = ran(TRANSACTIONAL.but(commits=frozenset({402})), answered(status), None)
    assert played.only(Complete).keep_effects is kept


# --- what is released ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ALL, ids=name_of)
@pytest.mark.parametrize(
    "outcome",
    [
        *[answered(status, entered=True) for status in (408, 425, 429, 503)],
        *[answered(status) for status in sorted(REFUSED_BEFORE_WORK)],
        *[answered(status, entered=False) for status in (200, 302, 400, 401, 404, 405, 413, 415, 422, 500)],
        answered(500, entered=True, repeatable=True),
        answered(200, repeatable=True),
        answered(418, entered=True),
    ],
    ids=lambda outcome: f"{outcome.status}-{outcome.entered}-{outcome.repeatable}",
)
def test_an_answer_that_did_nothing_frees_the_key(policy: Policy, outcome: Responded) -> None:
    """R15, E1, E3: load shedding, refusals before the handler, and what the handler declares repeatable, are sent and
    forgotten."""
    played = ran(policy.but(repeatable=frozenset({418})), outcome, None)
    assert played.names == "Claim Run Release"
    assert played.only(Release) == Release(OWN)
    assert played.result is FORWARD


@pytest.mark.parametrize("status", sorted(REFUSED_BEFORE_WORK))
def test_the_handlers_own_refusal_is_its_answer(status: int) -> None:
    """R15, E2: where the handler was entered, a 401 or 405 of its own is recorded like any other."""
    assert ran(OPAQUE, answered(status, entered=True), None).names == "Claim Run Complete"


def test_what_is_released_is_a_matter_of_policy() -> None:
    """R15: an operation may store its 503, by choice."""
    policy = OPAQUE.but(released=frozenset())
    assert ran(policy, answered(503, entered=True), None).names == "Claim Run Complete"


@STORE_ERRORS
@pytest.mark.parametrize("policy", ALL, ids=name_of)
def test_a_release_that_fails_changes_nothing_for_the_caller(policy: Policy, error: StoreError) -> None:
    """R14, B4: the answer is sent; the claim ends with its lease, and the observers are told."""
    played = ran(policy, answered(503), error)
    assert played.names == "Claim Run Release"
    assert played.result is FORWARD
    assert played.told == ("lease.lost!" if error is TAKEN else "recording.failed!")


# --- recording fails: the leased way ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", LEASED, ids=name_of)
@pytest.mark.parametrize("failures", [[AWAY], [LOST], [AWAY, LOST], [LOST, AWAY, AWAY], [StoreError()]])
def test_recording_is_tried_again_under_the_same_ownership(policy: Policy, failures: list[StoreError]) -> None:
    """R14, A1: the work is done, so the very same write is insisted on, and the answer goes out after it."""
    played = ran(policy, CHARGED, *failures, None)
    assert played.names == "Claim Run Complete" + " Wait Complete" * len(failures)
    assert len(set(map(id, played.all(Complete)))) == 1
    assert [wait.microseconds for wait in played.all(Wait)] == [50_000, 100_000, 200_000][: len(failures)]
    assert played.result is FORWARD
    assert played.told == ""


@pytest.mark.parametrize("policy", [OPAQUE, KEYED], ids=name_of)
@pytest.mark.parametrize("held", [None, AWAY, LOST, TAKEN], ids=["held", "away", "lost", "taken"])
def test_a_recording_that_never_succeeds_is_not_a_second_run(policy: Policy, held: StoreError | None) -> None:
    """R14, I6: the first caller gets the true answer, the outcome is held as unknown, and the observers are told."""
    played = ran(policy, CHARGED, AWAY, LOST, AWAY, AWAY, held)
    assert played.names == "Claim Run Complete Wait Complete Wait Complete Wait Complete Hold"
    assert sum(wait.microseconds for wait in played.all(Wait)) == 350_000
    assert played.only(Hold) == Hold(OWN)
    assert played.result is FORWARD
    assert played.told.startswith("recording.failed!")
    assert played.notices[0].error is AWAY


@pytest.mark.parametrize("left", [None, AWAY, LOST, TAKEN], ids=["left", "away", "lost", "taken"])
def test_an_answer_that_is_never_recorded_leaves_steps_that_are(left: StoreError | None) -> None:
    """R14, R24, I10: each step is in the journal, so it is left to whoever goes on with it, as after a crash;
    its key is not stuck until a person comes."""
    played = ran(RESUMABLE, CHARGED, AWAY, LOST, AWAY, AWAY, left)
    assert played.names == "Claim Run Complete Wait Complete Wait Complete Wait Complete Renew"
    assert played.only(Renew) == Renew(OWN, 1)
    assert played.result is FORWARD
    assert played.told.startswith("recording.failed!")


# --- recording fails: inside a transaction ---------------------------------------------------------------------------


def test_a_transaction_that_is_gone_did_nothing() -> None:
    """R23, H2: a commit that failed took its effects with it: 503, ask again with the same key."""
    played = ran(TRANSACTIONAL, CHARGED, AWAY)
    assert played.names == "Claim Run Complete"
    assert (played.result.kind, played.result.status) == ("store-unavailable", 503)
    assert b"charged" not in played.result.body
    assert played.told == "recording.failed!"
    assert played.notices[0].error is AWAY


def test_a_commit_that_a_constraint_refuses_is_the_applications_own_error() -> None:
    """R16, R23: it was rolled back with its claim, and is the handler's exception: nobody is told to ask again."""
    played = ran(TRANSACTIONAL, CHARGED, refused := CommitRefusedError("a constraint"))
    assert played.names == "Claim Run Complete"
    assert played.result == Propagate(refused)
    assert played.told == ""


MINE_IS_THERE = Found(standing_so(Standing.COMPLETED, owner=OWN.owner), NOW)
NOTHING_IS_THERE = Found(None, NOW)
THEIRS_IS_THERE = Found(standing_so(Standing.COMPLETED, owner=THEM), NOW)


@pytest.mark.parametrize("before", [[], [NOTHING_IS_THERE], [AWAY], [LOST, NOTHING_IS_THERE, THEIRS_IS_THERE]])
def test_a_lost_commit_is_looked_up_by_its_owner_token(before: list[object]) -> None:
    """R23, I1, K: a connection that dies in COMMIT leaves the outcome open; the row with my owner token settles it."""
    played = ran(TRANSACTIONAL, CHARGED, LOST, *before, MINE_IS_THERE)
    assert played.names == "Claim Run Complete Read" + " Wait Read" * len(before)
    assert {step.digest for step in played.all(Read)} == {OWN.digest}
    assert played.result is FORWARD
    assert played.told == "commit.unknown!"


@pytest.mark.parametrize("never", [NOTHING_IS_THERE, THEIRS_IS_THERE, AWAY], ids=["nothing", "theirs", "away"])
def test_a_commit_that_cannot_be_found_is_told_as_unknown(never: object) -> None:
    """I6, R23, K: it is never run blindly again here, and never reported as done; asking again with the key tells."""
    played = ran(TRANSACTIONAL, CHARGED, LOST, never, never, never, never)
    assert played.names == "Claim Run Complete Read Wait Read Wait Read Wait Read"
    assert (played.result.kind, played.result.status) == ("commit-unknown", 503)
    assert json.loads(played.result.body)["safe_new_key"] is False
    assert (b"retry-after", b"1") in played.result.headers


# --- the claim went to somebody else ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ALL, ids=name_of)
@pytest.mark.parametrize(
    ("row", "kind", "status"),
    [
        (standing_so(Standing.COMPLETED), "replayed", 201),
        (standing_so(Standing.TOMBSTONE), "result-not-kept", 201),
        (record(lease_until=NOW + 5 * SECOND), "in-progress", 409),
        (record(owner=OWN.owner), "in-progress", 409),
        (standing_so(Standing.UNKNOWN), "outcome-unknown", 409),
        (standing_so(Standing.STALE), "outcome-unknown", 409),
        (standing_so(Standing.STALE, effects=KEYED.effects), "outcome-unknown", 409),
        (standing_so(Standing.ANSWERED), "outcome-unknown", 409),
        (standing_so(Standing.COMPLETED, fingerprint=OTHER.value), "outcome-unknown", 409),
        (record(fingerprint=OTHER.value), "outcome-unknown", 409),
    ],
)
def test_a_late_owner_gives_the_answer_that_is_on_record(policy: Policy, row: Any, kind: str, status: int) -> None:
    """R12, I3, B4: who lost its claim changes nothing, learns it, and answers what the present owner's row says."""
    played = ran(policy, CHARGED, TAKEN, Found(row, NOW))
    assert played.names == "Claim Run Complete Read"
    assert (played.result.kind, played.result.status) == (kind, status)
    assert played.told == "lease.lost!"


def test_a_late_owner_tells_its_caller_when_to_ask() -> None:
    """R11, R12: where the new owner is still running, Retry-After is what a duplicate would be told."""
    row = Found(record(lease_until=NOW + 9 * SECOND), NOW)
    for outcome, usual, seconds in ((CHARGED, 4 * SECOND, b"4"), (CHARGED, 60 * SECOND, b"9")):
        played = play(started(KEYED, usual), won(), outcome, TAKEN, row)
        assert (b"retry-after", seconds) in played.result.headers
    streamed = play(started(KEYED, 4 * SECOND), won(), CHARGED._replace(streaming=True), TAKEN, row)
    assert (b"retry-after", b"4") in streamed.result.headers
    failed = play(started(OPAQUE, 4 * SECOND), won(), Raised(ValueError()), TAKEN, row)
    assert (b"retry-after", b"4") in failed.result.headers


@pytest.mark.parametrize("row", [None, standing_so(Standing.FREE), standing_so(Standing.FREE, fingerprint=OTHER.value)])
def test_a_late_owner_whose_key_is_forgotten(row: Any) -> None:
    """R12, R14, R23: the work of the leased way was done and its answer is sent; a transaction's was rolled back."""
    for policy in LEASED:
        assert ran(policy, CHARGED, TAKEN, Found(row, NOW)).result is FORWARD
    played = ran(TRANSACTIONAL, CHARGED, TAKEN, Found(row, NOW))
    assert (played.result.kind, played.result.status) == ("store-unavailable", 503)


@pytest.mark.parametrize("error", [AWAY, LOST, TAKEN], ids=["away", "lost", "taken"])
def test_a_late_owner_that_cannot_read_does_not_know(error: StoreError) -> None:
    """I6, R12: what cannot be read is unknown; it is neither reported as done nor as failed."""
    played = ran(KEYED, CHARGED, TAKEN, error)
    assert (played.result.kind, played.result.status) == ("outcome-unknown", 409)


def test_a_late_owner_before_a_newer_releases_record() -> None:
    """I4, I6: a row whose fingerprint only a newer release can compare is neither replayed nor does it raise."""

    class Old:
        value = MINE.value

        def matches(self, stored: bytes, /) -> bool:
            raise FingerprintAlgorithmError(stored)

    claim = claim_of(RESUMABLE.effects)._replace(fingerprint=Old())
    played = play(exchange(claim, RESUMABLE), won(), CHARGED, TAKEN, THEIRS_IS_THERE)
    assert (played.result.kind, played.result.status) == ("outcome-unknown", 409)


def test_losing_the_claim_while_trying_again_is_losing_it() -> None:
    """I3, R12: a retried recording that meets a newer claim is not tried further."""
    played = ran(KEYED, CHARGED, AWAY, TAKEN, THEIRS_IS_THERE)
    assert played.names == "Claim Run Complete Wait Complete Read"
    assert type(played.result) is Answer and played.result.kind == "replayed"
