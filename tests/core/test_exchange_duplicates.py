"""The exchange for who asks again and is to be told that it is done, not how."""

from __future__ import annotations

import json

import pytest

from tests.core.records import NOW, standing_so
from tests.core.script import ALL, name_of, play, started
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Standing, Verdict
from twicesafe.core.plain import plain_replay
from twicesafe.core.policy import Policy
from twicesafe.core.record import Record, StoredResponse
from twicesafe.core.steps import Answer

DONE = StoredResponse(
    201, ((b"Location", b"/charges/1"), (b"content-type", b"text/plain"), (b"etag", b"1")), b"charged"
)


def found(verdict: Verdict, stored: StoredResponse | None) -> Existing:
    """Somebody was here before, and this is left."""
    row: Record = standing_so(Standing.COMPLETED)._replace(response=stored)
    return Existing(verdict, row, NOW)


@pytest.mark.parametrize("policy", ALL, ids=name_of)
@pytest.mark.parametrize(
    "before", [found(Verdict.REPLAY, DONE), found(Verdict.GONE, DONE._replace(body=None))], ids=["kept", "gone"]
)
def test_a_duplicate_is_refused_and_told_where_the_result_is(policy: Policy, before: Existing) -> None:
    """R19, R21: nothing runs, the answer is 409 with the first one's Location and nothing else of it; no marker says
    that it is a replay, and a new key is not safe."""
    refusing = policy.but(refuse_duplicates=True)
    result = play(started(refusing), before).result
    assert type(result) is Answer
    document = json.loads(result.body)
    assert (result.status, result.kind) == (document["status"], "already-done") == (409, "already-done")
    assert (document["retryable"], document["safe_new_key"]) == (False, False)
    assert [line for line in result.headers if line in DONE.headers] == [DONE.headers[0]]
    assert b"idempotent-replayed" not in dict(result.headers)
    assert b"charged" not in result.body


@pytest.mark.parametrize("policy", ALL, ids=name_of)
def test_a_stored_failure_is_replayed_all_the_same(policy: Policy) -> None:
    """R15, I5: what failed is not done, so nobody is told that it is."""
    failed = StoredResponse(402, ((b"content-type", b"text/plain"),), b"declined")
    result = play(started(policy.but(refuse_duplicates=True)), found(Verdict.REPLAY, failed)).result
    assert (result.status, result.body, result.kind) == (402, b"declined", "replayed")


def test_without_a_recorded_answer_it_is_done_all_the_same() -> None:
    """R18, R19: of a result that is no longer kept the refusal says as much as there is."""
    result = play(started(ALL[0].but(refuse_duplicates=True)), found(Verdict.GONE, None)).result
    assert (result.status, result.kind) == (409, "already-done")


def test_the_quick_way_leaves_it_to_the_exchange() -> None:
    """R19: the shells' way around the exchange gives no replay where none is to be given."""
    before = found(Verdict.REPLAY, DONE)
    assert plain_replay(before, Policy()) is not None
    assert plain_replay(before, Policy(refuse_duplicates=True)) is None
