"""What an answer is taken to mean, answer by answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.answers import NO_PROBLEM, Again, Problem, Says, judge, problem_of
from twicesafe.core.contract import Contract
from twicesafe.core.problems import PROBLEMS, problem

PLAIN = ((b"Content-Type", b"text/html"),)
JSON = ((b"Content-Type", b"application/problem+json; charset=utf-8"),)
WAIT = (*PLAIN, (b"Retry-After", b"1"))

STATUSES = [
    (200, Again.NO, Says.DONE),
    (204, Again.NO, Says.DONE),
    (300, Again.NO, Says.NOTHING),
    (301, Again.NO, Says.NOTHING),
    (302, Again.NO, Says.NOTHING),
    (303, Again.NO, Says.DONE),
    (304, Again.NO, Says.NOTHING),
    (307, Again.NO, Says.NOT_DONE),
    (308, Again.NO, Says.NOT_DONE),
    (400, Again.NO, Says.NOT_DONE),
    (401, Again.NO, Says.NOT_DONE),
    (403, Again.NO, Says.NOT_DONE),
    (404, Again.NO, Says.NOT_DONE),
    (408, Again.YES, Says.NOT_DONE),
    (409, Again.NO, Says.NOT_DONE),
    (412, Again.NO, Says.NOT_DONE),
    (422, Again.NO, Says.NOT_DONE),
    (425, Again.YES, Says.NOT_DONE),
    (429, Again.YES, Says.NOT_DONE),
    (500, Again.YES, Says.NOTHING),
    (501, Again.NO, Says.NOT_DONE),
    (502, Again.YES, Says.NOTHING),
    (503, Again.YES, Says.NOTHING),
    (504, Again.YES, Says.NOTHING),
    (505, Again.NO, Says.NOT_DONE),
    (520, Again.NO, Says.NOTHING),
    (599, Again.NO, Says.NOTHING),
]


@pytest.mark.parametrize(("status", "again", "says"), STATUSES)
def test_a_status_alone(status: int, again: Again, says: Says) -> None:
    """R36: only the reviewed statuses are asked again, and only those that say so are taken for "not done"."""
    judgment = judge(status, PLAIN, b"<html>", contract=Contract.KEYED)
    assert (judgment.again, judgment.says, judgment.replayed) == (again, says, False)


@pytest.mark.parametrize(
    ("status", "contracts"),
    [
        (101, set()),
        (204, set(Contract)),
        (301, set()),
        (302, set()),
        (303, {Contract.KEYED, Contract.NEVER}),
        (304, {Contract.SAFE, Contract.CONDITIONAL}),
        (305, set()),
    ],
)
def test_what_counts_as_done(status: int, contracts: set[Contract]) -> None:
    """I6, R35: a redirect that is not followed proves no effect; 303 answers a POST, 304 a condition."""
    done = {one for one in Contract if judge(status, PLAIN, None, contract=one).says is Says.DONE}
    assert done == contracts


OWN = {
    "key-missing": (Again.NO, Says.NOT_DONE),
    "key-invalid": (Again.NO, Says.NOT_DONE),
    "body-too-large": (Again.NO, Says.NOT_DONE),
    "body-incomplete": (Again.YES, Says.NOT_THIS_TIME),
    "caller-unknown": (Again.NO, Says.NOT_THIS_TIME),
    "too-many-keys": (Again.YES, Says.NOT_THIS_TIME),
    "key-reused": (Again.NO, Says.NOT_THIS_TIME),
    "in-progress": (Again.IN_PROGRESS, Says.NOTHING),
    "outcome-unknown": (Again.NO, Says.NOTHING),
    "result-not-kept": (Again.NO, Says.DONE),
    "handler-failed": (Again.NO, Says.NEVER),
    "store-unavailable": (Again.YES, Says.NOT_THIS_TIME),
    "store-misconfigured": (Again.NO, Says.NOT_THIS_TIME),
    "commit-unknown": (Again.YES, Says.NOTHING),
    "already-done": (Again.NO, Says.DONE),
    "first-sent-invalid": (Again.NO, Says.NOT_THIS_TIME),
    "first-sent-expired": (Again.NO, Says.NOT_THIS_TIME),
    "interrupted": (Again.IN_PROGRESS, Says.NOTHING),
    "key-unknown": (Again.NO, Says.NOT_THIS_TIME),
    "key-closed": (Again.NO, Says.NOT_DONE),
    "lookup-unavailable": (Again.YES, Says.NOT_THIS_TIME),
    "not-forwarded": (Again.NO, Says.NOT_THIS_TIME),
    "upstream-unreachable": (Again.YES, Says.NOT_THIS_TIME),
    "upstream-failed": (Again.YES, Says.NOTHING),
}


@pytest.mark.parametrize("kind", sorted(PROBLEMS))
def test_the_servers_own_problems(kind: str) -> None:
    """R21, R36: client and server mean the same by each problem type, wherever its documentation is hosted."""
    for base in ("urn:twicesafe:problem:", "https://example.com/problems/", "https://example.com/problems#"):
        status, headers, body = problem(kind, header="X", base=base, detail="No.", retry_after=1)
        judgment = judge(status, headers, body, contract=Contract.KEYED)
        assert (judgment.again, judgment.says) == OWN[kind], base


@pytest.mark.parametrize(
    "document",
    [
        {"type": "urn:twicesafe:problem:key-reused"},
        {"type": "https://errors.example/v1/key-reused/"},
        {"type": "https://errors.example/42", "title": "Idempotency-Key is already used"},
        {"type": "about:blank", "safe_new_key": False},
    ],
)
@pytest.mark.parametrize("status", [409, 422])
def test_a_key_that_was_used_names_something_that_may_be_done(status: int, document: dict[str, object]) -> None:
    """I6, R37: a mismatch does nothing itself, and says that something happened under this key."""
    judgment = judge(status, JSON, json.dumps(document).encode(), contract=Contract.KEYED)
    assert (judgment.again, judgment.says) == (Again.NO, Says.NOT_THIS_TIME)


@pytest.mark.parametrize("document", [{"type": "invalid"}, {"title": "Invalid"}, {"safe_new_key": True}, {"title": 1}])
def test_a_validation_error_is_a_refusal(document: dict[str, object]) -> None:
    """R36: a 422 about the contents says that it was not done."""
    assert judge(422, JSON, json.dumps(document).encode(), contract=Contract.KEYED).says is Says.NOT_DONE


def test_what_was_done_before_is_done() -> None:
    """R35, R37: a server that refuses duplicates says that an earlier attempt did it; without a key it is a refusal."""
    status, headers, body = problem("already-done", header="X", base="urn:twicesafe:problem:")
    keyed = judge(status, headers, body, contract=Contract.KEYED)
    assert (keyed.says, keyed.replayed) == (Says.DONE, True)
    assert judge(status, headers, body, contract=Contract.CONDITIONAL).says is Says.NOT_THIS_TIME


def test_in_progress_is_about_a_key() -> None:
    """R36: without a key a 409 that asks to wait is a refusal that may pass, and tells of no other attempt."""
    assert judge(409, WAIT, None, contract=Contract.KEYED).again is Again.IN_PROGRESS
    judgment = judge(409, WAIT, None, contract=Contract.NEVER)
    assert (judgment.again, judgment.says) == (Again.YES, Says.NOT_DONE)


def test_a_503_with_a_time_to_come_back_is_a_refusal() -> None:
    """R15, R35: a server that knows when it will be back did nothing; a gateway's bare 503 proves nothing."""
    assert judge(503, WAIT, None, contract=Contract.KEYED).says is Says.NOT_DONE
    assert judge(503, PLAIN, None, contract=Contract.KEYED).says is Says.NOTHING
    assert judge(500, WAIT, None, contract=Contract.KEYED).says is Says.NOTHING


def test_a_503_that_a_gateway_may_have_made_proves_nothing() -> None:
    """I6, R35: Varnish asks to wait when its connection to the server broke, after the effect or before it."""
    relayed = (*WAIT, (b"Via", b"1.1 varnish (Varnish/7.4)"))
    assert judge(503, relayed, None, contract=Contract.KEYED).says is Says.NOTHING
    body = b'{"type": "urn:twicesafe:problem:overloaded"}'
    spoken = ((b"Content-Type", b"application/problem+json"), *relayed[1:])
    assert judge(503, spoken, body, contract=Contract.KEYED).says is Says.NOT_DONE, "the server itself speaks"
    assert judge(429, relayed, None, contract=Contract.KEYED).says is Says.NOT_DONE


@pytest.mark.parametrize("retryable", [True, False])
@pytest.mark.parametrize("status", [400, 409, 423, 500, 503])
def test_the_problems_word_counts(status: int, retryable: bool) -> None:
    """R21: the member `retryable` decides where the status alone would have."""
    body = json.dumps({"type": "about:blank", "retryable": retryable}).encode()
    assert judge(status, JSON, body, contract=Contract.KEYED).again is (Again.YES if retryable else Again.NO)


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_some_refusals_are_final_whatever_is_said(status: int) -> None:
    """R36: a repeat without a change cannot mend authentication, permission or validation."""
    body = json.dumps({"retryable": True}).encode()
    assert judge(status, JSON, body, contract=Contract.KEYED).again is Again.NO


@pytest.mark.parametrize(
    "line", [(b"Idempotent-Replayed", b"true"), (b"idempotent-replayed", b" True "), (b"IDEMPOTENT-REPLAYED", b"TRUE")]
)
def test_the_marker_of_a_replay(line: tuple[bytes, bytes]) -> None:
    """R37: the marker is known in every spelling of its name and value."""
    judgment = judge(503, (*WAIT, line), None, contract=Contract.KEYED)
    assert (judgment.again, judgment.says, judgment.replayed) == (Again.NO, Says.NEVER, True)
    assert not judge(503, (*WAIT, (line[0], b"false")), None, contract=Contract.KEYED).replayed


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"[]",
        b"null",
        b'"in-progress"',
        b'{"type": 409, "retryable": "yes"}',
        b'{"type": null}',
        b"{",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"retryable": true, "n": ' + b"9" * 5000 + b"}",
        b'{"retryable": true, "x": "' + b"x" * 70_000 + b'"}',
    ],
)
def test_a_body_that_is_no_problem_document(body: bytes | None) -> None:
    """R36: whatever an error's body holds, reading it raises nothing and invents nothing."""
    assert problem_of(JSON, body) == NO_PROBLEM


def test_only_json_is_read_as_json() -> None:
    """R36: the media type decides; the last part of the type names the problem."""
    body = b'{"type": "https://errors.example/v1/in-progress/", "retryable": true}'
    assert problem_of(PLAIN, body) == NO_PROBLEM
    assert problem_of(JSON, body) == Problem("in-progress", True)
    assert problem_of(JSON, b'{"safe_new_key": false}') == Problem("", None, False)
    assert problem_of(((b"content-type", b"application/json"),), body) == Problem("in-progress", True)


@given(st.integers(100, 599), st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40))), st.binary())
def test_no_answer_is_too_strange(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """R36: every answer gets a judgment."""
    assert judge(status, [*JSON, *headers], body, contract=Contract.KEYED).reason
