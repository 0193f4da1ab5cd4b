"""The exchange up to the run: claiming, being told why not, waiting, and a store that cannot be reached."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.core.records import ANSWER, DIGEST, NOW, SECOND, record, standing_so
from tests.core.script import ALL, CHARGED, KEYED, OPAQUE, OWN, TRANSACTIONAL, name_of, play, started, won
from twicesafe.core.capture import Responded
from twicesafe.core.claims import Claim, Existing
from twicesafe.core.duplicates import retry_after
from twicesafe.core.lifecycle import Standing, Verdict
from twicesafe.core.policy import Policy
from twicesafe.core.record import Ownership, Record, StoredResponse
from twicesafe.core.steps import FORWARD, Answer, Complete, Notice, Release, Renew, Run, Wait
from twicesafe.errors import (
    AmbiguousWriteError,
    FingerprintAlgorithmError,
    LeaseLostError,
    SchemaError,
    StoreUnavailableError,
)

LOST, AWAY = AmbiguousWriteError(), StoreUnavailableError()


def existing(verdict: Verdict, row: Record | None = None) -> Existing:
    """Somebody else was here."""
    return Existing(verdict, row, NOW)


RUNNING = existing(Verdict.IN_PROGRESS, record(lease_until=NOW + 30 * SECOND))
REPLAY = existing(Verdict.REPLAY, standing_so(Standing.COMPLETED))


def kind_and_status(result: Any) -> tuple[str, int]:
    """What an answer is, and that its body agrees with its status where it is a problem document."""
    assert type(result) is Answer
    if dict(result.headers).get(b"content-type") == b"application/problem+json":
        document = json.loads(result.body)
        assert document["status"] == result.status
        assert document["type"] == "urn:twicesafe:problem:" + result.kind
    return result.kind, result.status


# --- winning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ALL, ids=name_of)
def test_claim_run_record_send(policy: Policy) -> None:
    """R10, R14, I2, I11: the claim comes before the run, the record before the answer, each under one ownership."""
    played = play(started(policy), won(), CHARGED, None)
    assert played.names == "Claim Run Complete"
    assert played.only(Claim) == played.steps[0]
    assert played.only(Run) == Run(OWN, None)
    assert played.only(Complete).ownership == OWN
    assert played.result is FORWARD
    assert played.told == ""


def test_what_a_lost_run_left_is_handed_on() -> None:
    """R13, I8: after taking over, the handler is given what the lost run left, and the observers are told."""
    left = standing_so(Standing.STALE)
    played = play(started(KEYED), won(previous=left), CHARGED, None)
    assert played.only(Run) == Run(OWN, left)
    assert played.told == "claim.taken_over"


@pytest.mark.parametrize("nothing", [{"status": 503}, {"repeatable": True}, {"entered": False}])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_key_that_was_taken_over_keeps_its_request(nothing: dict[str, Any], *, streaming: bool) -> None:
    """I4, R25: an attempt that did nothing frees no key under which the one before it may have called a provider."""
    left = standing_so(Standing.STALE)
    outcome = CHARGED._replace(streaming=streaming, **nothing)
    flowed = [CHARGED] if streaming else []
    first = play(started(KEYED), won(), outcome, None, *flowed)
    again = play(started(KEYED), won(previous=left), outcome, None, *flowed)
    assert first.all(Release) and not again.all(Release)
    assert again.only(Renew).lease_us == 1
    transactional = play(started(TRANSACTIONAL), won(previous=left), outcome, None, *flowed)
    assert transactional.all(Release), "its effects were rolled back"


# --- being told why not ----------------------------------------------------------------------------------------------


def test_a_replay_is_the_first_answer_and_says_so() -> None:
    """R11, R17, D2: status, lines and bytes of the first answer, with the marker at the end; nothing runs."""
    played = play(started(OPAQUE), REPLAY)
    assert played.names == "Claim"
    lines = (*ANSWER.headers, (b"idempotent-replayed", b"true"))
    assert played.result == Answer(201, lines, b"charged", "replayed", stored=ANSWER)
    assert played.told == "replayed"


def test_an_empty_answer_is_replayed_as_empty() -> None:
    """A3, D6: a 204 replays as a 204 without a body."""
    row = standing_so(Standing.COMPLETED, response=StoredResponse(204, (), b""))
    played = play(started(OPAQUE), existing(Verdict.REPLAY, row))
    assert (played.result.status, played.result.body, played.result.kind) == (204, b"", "replayed")


def test_a_failure_is_replayed_too() -> None:
    """R15, E2: a stored failure is the answer to every retry, as its first caller saw it."""
    row = standing_so(Standing.COMPLETED, response=StoredResponse(402, ((b"x", b"1"),), b"declined"))
    played = play(started(OPAQUE), existing(Verdict.REPLAY, row))
    assert (played.result.status, played.result.body) == (402, b"declined")


KEPT_LINES = ((b"Location", b"/charges/1"), (b"x-charge", b"1"))
LINES_OF_THE_BODY = (
    (b"Content-Type", b"text/plain"),
    (b"content-length", b"7"),
    (b"Content-Encoding", b"gzip"),
    (b"ETag", b'"1"'),
    (b"last-modified", b"then"),
    (b"Cache-Control", b"max-age=60"),
)


def test_a_body_that_is_gone_is_replaced_by_a_document() -> None:
    """R18, R20, A4: status and lines still tell what was done; a problem document stands for the body; nothing runs."""
    response = StoredResponse(201, (*LINES_OF_THE_BODY[:3], *KEPT_LINES, *LINES_OF_THE_BODY[3:]), None)
    played = play(started(OPAQUE), existing(Verdict.GONE, standing_so(Standing.TOMBSTONE, response=response)))
    assert played.names == "Claim"
    assert kind_and_status(played.result) == ("result-not-kept", 201)
    assert played.result.headers[:2] == KEPT_LINES
    assert played.result.headers[-1] == (b"idempotent-replayed", b"true")
    names = [name.lower() for name, _ in played.result.headers]
    assert len(names) == len(set(names)), "no line of the lost body is left beside the document's own"
    assert dict(played.result.headers)[b"content-length"] == str(len(played.result.body)).encode()
    assert played.told == "replayed.without_body"


@pytest.mark.parametrize("status", [204, 205, 304])
def test_a_status_without_a_body_stays_without_one(status: int) -> None:
    """R18, A3: where HTTP allows no body there is no document either."""
    row = standing_so(Standing.TOMBSTONE, response=StoredResponse(status, (*KEPT_LINES, (b"etag", b"1")), None))
    played = play(started(OPAQUE), existing(Verdict.GONE, row))
    lines = (*KEPT_LINES, (b"idempotent-replayed", b"true"))
    assert played.result == Answer(status, lines, b"", "result-not-kept", stored=row.response)


@pytest.mark.parametrize("row", [None, standing_so(Standing.TOMBSTONE, response=None)])
def test_a_tombstone_without_any_answer_says_done(row: Record | None) -> None:
    """R18, R20: where nothing of the answer is left, the caller still learns that it is done."""
    played = play(started(OPAQUE), existing(Verdict.GONE, row))
    assert kind_and_status(played.result) == ("result-not-kept", 200)


def test_another_request_is_refused() -> None:
    """R7, R11, I4: a key that names another request is 422, and nothing of that request is told."""
    played = play(started(OPAQUE), existing(Verdict.MISMATCH, standing_so(Standing.COMPLETED)))
    assert played.names == "Claim"
    assert kind_and_status(played.result) == ("key-reused", 422)
    assert b"charge" not in played.result.body and len(played.result.headers) == 4
    assert played.told == "mismatch"


def test_an_unknown_outcome_is_told_as_unknown() -> None:
    """R13, I6: nobody is told that it failed, and a new key is not advised."""
    played = play(started(OPAQUE), existing(Verdict.UNKNOWN, standing_so(Standing.UNKNOWN)))
    assert kind_and_status(played.result) == ("outcome-unknown", 409)
    assert json.loads(played.result.body)["safe_new_key"] is False
    assert played.told == "outcome.unknown"


def test_a_running_attempt_is_409_with_retry_after() -> None:
    """R11, C1: the loser of a race is told to ask again, and when."""
    played = play(started(OPAQUE), RUNNING)
    assert kind_and_status(played.result) == ("in-progress", 409)
    assert (b"retry-after", b"1") in played.result.headers
    assert played.told == "conflict"


@pytest.mark.parametrize(
    ("left", "usual", "seconds"),
    [
        (30 * SECOND, 0, 1),
        (30 * SECOND, 3 * SECOND, 3),
        (30 * SECOND, 3 * SECOND + 1, 4),
        (2 * SECOND, 3 * SECOND, 2),
        (30 * SECOND, 1, 1),
        (1, 0, 1),
        (0, 0, 1),
        (-5 * SECOND, 3 * SECOND, 1),
        (3600 * SECOND, 600 * SECOND, 600),
    ],
)
def test_retry_after_is_never_the_whole_lease(left: int, usual: int, seconds: int) -> None:
    """R11, K: whole seconds, at least one: the lease left or what the operation usually takes, whichever is less."""
    assert retry_after(left, usual) == seconds
    row = record(lease_until=NOW + left)
    played = play(started(OPAQUE, usual), existing(Verdict.IN_PROGRESS, row))
    assert (b"retry-after", b"%d" % seconds) in played.result.headers


def test_a_rival_that_cannot_be_seen_yet_is_running() -> None:
    """R11, R23: a rival's open transaction shows no row; its retry is told to ask again in a second."""
    played = play(started(OPAQUE, 7 * SECOND), existing(Verdict.IN_PROGRESS, None))
    assert kind_and_status(played.result) == ("in-progress", 409)
    assert (b"retry-after", b"1") in played.result.headers


# --- waiting ---------------------------------------------------------------------------------------------------------

PATIENT = Policy(wait=timedelta(seconds=2))


@pytest.mark.parametrize("microseconds", [1, 10_000, 25_000, 100_000, 2_000_000, 30_000_000])
def test_a_wait_is_bounded(microseconds: int) -> None:
    """R11: a duplicate waits no longer than the policy says, in growing pauses, and is then told to ask again."""
    policy = Policy(wait=timedelta(microseconds=microseconds))
    times = len(play(started(policy), *[RUNNING] * pauses(microseconds), RUNNING).all(Wait))
    played = play(started(policy), *[RUNNING] * (times + 1))
    waits = [wait.microseconds for wait in played.all(Wait)]
    assert sum(waits) == microseconds
    assert all(0 < wait <= 500_000 for wait in waits)
    assert waits[:-1] == sorted(waits[:-1])
    assert kind_and_status(played.result) == ("in-progress", 409)
    assert played.told == "conflict"


def pauses(microseconds: int) -> int:
    """How many pauses of 25, 50, 100, 200, 400, 500, 500 ... ms fill the time."""
    count, pause = 0, 25_000
    while microseconds > 0:
        microseconds -= pause
        pause = min(2 * pause, 500_000)
        count += 1
    return count


def test_a_wait_that_is_cut_short_goes_on() -> None:
    """R11: woken for nothing the duplicate waits on for what is left of its time, and a store that only wakes is not
    asked for ever."""
    answers = [RUNNING, 5, RUNNING, 300_000] * 100
    generator, asked, answer = started(Policy(wait=timedelta(seconds=1))), [], None
    try:
        while True:
            step = generator.send(answer)
            if isinstance(step, Wait):
                assert step.digest == DIGEST
                asked.append((step.microseconds, step.at_most))
            answer = None if isinstance(step, Notice) else answers.pop(0)
    except StopIteration as end:
        result = end.value
    assert kind_and_status(result) == ("in-progress", 409)
    assert asked == [
        (25_000, 1_000_000), (50_000, 990_000), (100_000, 690_000), (200_000, 680_000),
        (380_000, 380_000), (370_000, 370_000), (70_000, 70_000), (60_000, 60_000),
    ]  # fmt: skip


def test_a_wait_ends_with_the_first_ones_answer() -> None:
    """R11: as soon as the first attempt is done, the waiting duplicate is given its answer."""
    played = play(started(PATIENT), RUNNING, RUNNING, REPLAY)
    assert played.names == "Claim Wait Claim Wait Claim"
    assert played.result.kind == "replayed"


@pytest.mark.parametrize("verdict", [Verdict.MISMATCH, Verdict.UNKNOWN, Verdict.GONE])
def test_only_a_running_attempt_is_waited_for(verdict: Verdict) -> None:
    """R11, I4: what no waiting can change is told at once, before and after a wait."""
    row = standing_so(Standing.TOMBSTONE)
    assert play(started(PATIENT), existing(verdict, row)).names == "Claim"
    assert play(started(PATIENT), RUNNING, existing(verdict, row)).names == "Claim Wait Claim"


def test_a_wait_may_end_with_the_claim() -> None:
    """R11, R13: if the first attempt went away without a trace, the waiting one runs, once."""
    played = play(started(PATIENT), RUNNING, won(), CHARGED, None)
    assert played.names == "Claim Wait Claim Run Complete"


# --- a store in trouble ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [AWAY, FingerprintAlgorithmError("x"), LeaseLostError("x")],
    ids=lambda e: type(e).__name__,
)
def test_without_a_claim_nothing_runs(trouble: Exception) -> None:
    """R10, I2: where the store cannot promise to remember, the caller is told 503 and nothing is done."""
    played = play(started(OPAQUE), trouble)
    assert played.names == "Claim"
    assert kind_and_status(played.result) == ("store-unavailable", 503)
    assert (b"retry-after", b"1") in played.result.headers
    assert played.told == "store.unavailable!"
    assert played.notices[0].error is trouble, "whoever looks after the server learns why"


def test_missing_tables_are_no_trouble_that_passes() -> None:
    """R10, R21: without tables nothing runs; the caller is not told to ask again, and the observers are told why."""
    played = play(started(OPAQUE), trouble := SchemaError("run `twicesafe schema apply`"))
    assert played.names == "Claim"
    assert kind_and_status(played.result) == ("store-misconfigured", 500)
    assert json.loads(played.result.body)["retryable"] is False
    assert "retry-after" not in dict(played.result.headers)
    assert played.told == "store.misconfigured!"
    assert played.notices[0].error is trouble


def test_a_claim_whose_reply_was_lost_is_asked_for_again() -> None:
    """B6, R10: the very same claim is made again, finds its own row, and the handler runs once."""
    played = play(started(OPAQUE), LOST, won(), CHARGED, None)
    assert played.names == "Claim Wait Claim Run Complete"
    first, second = played.all(Claim)
    assert first is second
    assert len(played.all(Run)) == 1 and played.result is FORWARD


def test_once_a_claim_may_stand_an_absent_store_is_asked_again() -> None:
    """B6: a claim that may have been written is not left behind because the store was away when it was asked again."""
    played = play(started(OPAQUE), LOST, AWAY, won(), CHARGED, None)
    assert played.names == "Claim Wait Claim Wait Claim Run Complete"


@pytest.mark.parametrize("third", [LOST, AWAY], ids=["lost", "away"])
def test_asking_again_ends(third: Exception) -> None:
    """B6, R14: after six tries the caller is told 503; nothing ran."""
    played = play(started(OPAQUE), LOST, LOST, third, AWAY, LOST, AWAY, None)
    assert played.names == "Claim" + " Wait Claim" * 5 + " Release"
    assert sum(wait.microseconds for wait in played.all(Wait)) == 1_550_000
    assert kind_and_status(played.result) == ("store-unavailable", 503)
    assert played.told == "store.unavailable!"


@pytest.mark.parametrize("met", [None, AWAY, LOST, LeaseLostError()], ids=["done", "away", "lost", "never stood"])
def test_a_claim_that_may_stand_is_taken_back(met: Exception | None) -> None:
    """B6, I6: nothing ran, so a claim that may have been written is released rather than left to end as unknown."""
    played = play(started(OPAQUE), *[LOST] * 6, met)
    claim = played.all(Claim)[0]
    assert played.only(Release) == Release(Ownership(claim.digest, claim.owner, 1))
    assert kind_and_status(played.result) == ("store-unavailable", 503)
    assert played.told == "store.unavailable!"


def test_a_transactions_claim_needs_no_taking_back() -> None:
    """B6, R23: it went with its transaction."""
    assert play(started(TRANSACTIONAL), *[LOST] * 6).names == "Claim" + " Wait Claim" * 5


def test_a_lost_reply_may_hide_a_rivals_claim() -> None:
    """B6, C1: asked again, the claim may turn out to be somebody else's; then nothing runs here."""
    played = play(started(OPAQUE), LOST, RUNNING)
    assert played.names == "Claim Wait Claim"
    assert kind_and_status(played.result) == ("in-progress", 409)


def test_the_policys_own_words_are_used() -> None:
    """R5, R21: problem documents name the policy's header and begin their types as the policy says."""
    policy = Policy(header="X-Request-Key", problem_base="https://example.com/p/")
    played = play(started(policy), RUNNING)
    document = json.loads(played.result.body)
    assert document["type"] == "https://example.com/p/in-progress"
    assert "X-Request-Key" in document["detail"]


def test_what_is_no_answer_to_a_claim_is_a_fault_of_the_driver() -> None:
    """I2: a driver that sends back nonsense is stopped, and nothing runs."""
    generator = started(OPAQUE)
    generator.send(None)
    with pytest.raises(AssertionError):
        generator.send(Responded(200, (), b""))
