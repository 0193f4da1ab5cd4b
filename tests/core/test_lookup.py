"""Looking a key up, and closing it, driven by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.records import ANSWER, ME, MINE, NOW, SECOND, record, standing_so
from tests.core.script import OWN, play
from twicesafe.core.claims import Claimed, Existing, Found
from twicesafe.core.fingerprint import JSON, Fingerprint, FingerprintRule, RequestFacts
from twicesafe.core.keys import scoped_key
from twicesafe.core.lifecycle import Standing, Verdict, decide
from twicesafe.core.lookup import CLOSED, close, closing, look_up
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects, Record, RecordState, StoredResponse
from twicesafe.core.steps import Claim, Complete, Read
from twicesafe.errors import AmbiguousWriteError, StoreUnavailableError

KEY = scoped_key("user", "k-0001-0001-0001")
CLAIM = closing(KEY, Operation("charge"), ME)
CLOSED_ROW = standing_so(Standing.COMPLETED, fingerprint=CLOSED.value, response=StoredResponse(410, (), b"{}"))


def looked(row: Record | None, policy: Policy | None = None) -> Any:
    """The answer to a look-up that finds this row."""
    return play(look_up(KEY.digest, policy or Policy()), Found(row, NOW)).result


def kind_of(answer: Any) -> tuple[int, str, Any]:
    """Status, kind and `final` of a problem."""
    document = json.loads(answer.body)
    return answer.status, document["type"].rsplit(":", 1)[1], document.get("final")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (None, (404, "key-unknown", False)),
        (standing_so(Standing.FREE), (404, "key-unknown", False)),
        (standing_so(Standing.CLAIMED), (409, "in-progress", None)),
        (standing_so(Standing.STALE), (409, "outcome-unknown", None)),
        (standing_so(Standing.STALE, effects=Effects.KEYED), (409, "interrupted", None)),
        (standing_so(Standing.STALE, effects=Effects.RESUMABLE), (409, "interrupted", None)),
        (standing_so(Standing.STALE, effects=Effects.KEYED, key_until=NOW), (409, "outcome-unknown", None)),
        (standing_so(Standing.UNKNOWN), (409, "outcome-unknown", None)),
        (standing_so(Standing.TOMBSTONE), (201, "result-not-kept", None)),
        (standing_so(Standing.ANSWERED), (201, "result-not-kept", None)),
        (CLOSED_ROW, (404, "key-closed", True)),
        (CLOSED_ROW._replace(body_until=NOW), (404, "key-closed", True)),
        (CLOSED_ROW._replace(key_until=NOW), (404, "key-unknown", False)),
        (record(fingerprint=CLOSED.value), (404, "key-unknown", False)),
    ],
)
def test_a_look_up_tells_how_the_key_stands(row: Record | None, told: tuple[int, str, Any]) -> None:
    """R11, I6: by the store's now, whoever holds it, and without the request; only a closed key is final."""
    assert kind_of(looked(row)) == told


def test_a_look_up_gives_the_stored_answer() -> None:
    """R17: as a replay, which no cache may keep: the look-up was a GET, and the answer is not of one."""
    kept = ANSWER._replace(headers=(*ANSWER.headers, (b"Cache-Control", b"max-age=60"), (b"etag", b'"1"')))
    answer = looked(standing_so(Standing.COMPLETED, response=kept))
    assert (answer.status, answer.body) == (201, ANSWER.body)
    last = ((b"etag", b'"1"'), (b"idempotent-replayed", b"true"), (b"cache-control", b"no-store"))
    assert answer.headers == (*ANSWER.headers, *last)


def test_a_claim_that_runs_says_when_to_ask_again() -> None:
    """R11: Retry-After, as on the request itself."""
    assert (b"retry-after", b"1") in looked(standing_so(Standing.CLAIMED)).headers


def test_a_look_up_changes_nothing() -> None:
    """I5: it reads once, whatever it finds."""
    for where in Standing:
        played = play(look_up(KEY.digest, Policy()), Found(standing_so(where), NOW))
        assert (played.steps, played.told) == ([Read(KEY.digest)], "looked_up")


def test_a_key_that_was_never_used_is_closed() -> None:
    """R1, I5: it is claimed and completed as closed, for as long as keys are remembered, and then it is final."""
    played = play(close(CLAIM, Policy()), Claimed(OWN, NOW), None)
    assert played.names == "Claim Complete"
    done = played.only(Complete)
    assert (done.ownership, done.response.status, done.key_us) == (OWN, 410, Policy().key_us)
    assert kind_of(played.result) == (404, "key-closed", True)
    assert json.loads(played.result.body)["safe_new_key"] is True
    assert played.told == "key.closed"


@pytest.mark.parametrize("rule", [FingerprintRule(), FingerprintRule(JSON)])
def test_whatever_arrives_at_a_closed_key_is_refused(rule: FingerprintRule) -> None:
    """I4: a closed key is used up, for every request by every rule, while it is being closed and after."""
    request = Fingerprint(RequestFacts("POST", b"/", b"", (), b""), rule)
    for row in (CLOSED_ROW, record(fingerprint=CLOSED.value), record(fingerprint=CLOSED.value, lease_until=NOW)):
        assert decide(row, request, ME, NOW) is Verdict.MISMATCH


def test_closing_is_finished_by_whoever_asks_next() -> None:
    """R13: a closing that was cut off between its two writes holds up nobody who closes again."""
    assert CLAIM.effects is Effects.KEYED
    stale = record(fingerprint=CLOSED.value, effects=Effects.KEYED, lease_until=NOW)
    assert decide(stale, CLOSED, ME, NOW) is Verdict.TAKE_OVER
    played = play(close(CLAIM, Policy()), Claimed(OWN, NOW, stale), None)
    assert kind_of(played.result) == (404, "key-closed", True)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Existing(Verdict.REPLAY, CLOSED_ROW, NOW), (404, "key-closed", True)),
        (Existing(Verdict.MISMATCH, standing_so(Standing.CLAIMED), NOW), (409, "in-progress", None)),
        (Existing(Verdict.MISMATCH, standing_so(Standing.UNKNOWN), NOW), (409, "outcome-unknown", None)),
        (Existing(Verdict.MISMATCH, standing_so(Standing.TOMBSTONE), NOW), (201, "result-not-kept", None)),
        (Existing(Verdict.IN_PROGRESS, None, NOW), (409, "in-progress", None)),
    ],
)
def test_a_key_that_was_used_is_not_closed(found: Existing, told: tuple[int, str, Any]) -> None:
    """I5, I6: what is known of it is told instead, and nothing is written."""
    played = play(close(CLAIM, Policy()), found)
    assert [type(step) for step in played.steps] == [Claim]
    assert kind_of(played.result) == told


@pytest.mark.parametrize("error", [StoreUnavailableError("down"), AmbiguousWriteError("lost")])
def test_without_a_store_nothing_is_said(error: Exception) -> None:
    """I6, R10: 503, and neither "unknown key" nor "closed", whichever step met it; it is told loudly."""
    scripts = [
        play(look_up(KEY.digest, Policy()), error),
        play(close(CLAIM, Policy()), error),
        play(close(CLAIM, Policy()), Claimed(OWN, NOW), error),
    ]
    for played in scripts:
        assert kind_of(played.result) == (503, "lookup-unavailable", None)
        assert played.told == "store.unavailable!"


def test_the_closings_claim_names_no_request() -> None:
    """R22, I4: it carries the key's hint and no more, and no request has its fingerprint."""
    assert (CLAIM.digest, CLAIM.key_hint, CLAIM.request) == (KEY.digest, "…0001", None)
    assert not CLOSED.matches(MINE.value)
    assert RecordState.COMPLETED is CLOSED_ROW.state and CLAIM.lease_us == 30 * SECOND
