"""Problem documents: what they say, and what they never say."""

from __future__ import annotations

import inspect
import json

import pytest

from twicesafe import errors
from twicesafe.core.problems import DETAILS, PROBLEMS, REPLAYED, problem

BASE = "https://example.com/problems#"
HEADER = "X-Key"


@pytest.mark.parametrize("kind", list(PROBLEMS))
def test_each_document_is_complete(kind: str) -> None:
    """R21: type, title, status, detail and the two machine-readable members, as problem+json that is not cached."""
    status, lines, body = problem(kind, header=HEADER, base=BASE, detail=None if kind in DETAILS else "Said elsewhere.")
    shape = PROBLEMS[kind]
    document = json.loads(body)
    assert document == {
        "type": BASE + kind,
        "title": shape.title,
        "status": shape.status,
        "detail": document["detail"],
        "retryable": shape.retryable,
        "safe_new_key": shape.safe_new_key,
    }
    assert document["detail"] and "{" not in document["detail"]
    assert status == shape.status
    assert lines == (
        (b"content-type", b"application/problem+json"),
        (b"content-language", b"en"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    )


@pytest.mark.parametrize(
    ("kind", "status", "title"),
    [
        ("key-missing", 400, "Idempotency-Key is missing"),
        ("key-reused", 422, "Idempotency-Key is already used"),
        ("in-progress", 409, "A request is outstanding for this Idempotency-Key"),
    ],
)
def test_the_drafts_three(kind: str, status: int, title: str) -> None:
    """R3, R11, R21: the draft's problems have the draft's statuses and titles."""
    assert PROBLEMS[kind][:2] == (status, title)


def test_details_name_the_carrier_in_force() -> None:
    """R21: where another header carries the key, the caller is told of that one."""
    _, _, body = problem("key-missing", header="PayPal-Request-Id", base="")
    assert "PayPal-Request-Id" in json.loads(body)["detail"]


def test_a_document_may_say_more_closely_what_is_wrong() -> None:
    """R21: detail and status can be given, and Retry-After is whole seconds."""
    status, lines, body = problem("in-progress", header=HEADER, base="", detail="Wait, ü.", status=423, retry_after=7)
    document = json.loads(body)
    assert status == document["status"] == 423
    assert document["detail"] == "Wait, ü."
    assert lines[-1] == (b"retry-after", b"7")
    assert (b"content-length", str(len(body)).encode()) in lines


def test_nothing_of_any_request_can_get_inside() -> None:
    """R21, R22: a document is made of the problem's kind and the policy's words, and of nothing else."""
    assert set(inspect.signature(problem).parameters) == {
        "kind",
        "header",
        "base",
        "detail",
        "status",
        "retry_after",
        "final",
    }
    for kind, detail in DETAILS.items():
        assert set(detail.split("{")[1:]) == {part for part in detail.split("{")[1:] if part.startswith("header}")}, (
            kind
        )


def test_a_new_key_is_never_advised_where_the_work_may_be_done() -> None:
    """I6, R21: safe_new_key is true only where nothing was claimed for this key or ever will be."""
    safe = {kind for kind, shape in PROBLEMS.items() if shape.safe_new_key}
    assert safe == {"key-missing", "key-invalid", "body-too-large", "key-closed"}
    retryable = {kind for kind, shape in PROBLEMS.items() if shape.retryable}
    assert retryable == {
        "body-incomplete", "in-progress", "outcome-unknown", "store-unavailable", "commit-unknown",
        "upstream-unreachable", "upstream-failed", "interrupted", "key-unknown", "lookup-unavailable", "too-many-keys",
    }  # fmt: skip


def test_each_error_a_caller_can_meet_has_its_problem() -> None:
    """R21: the errors of this package and its problem documents agree about statuses; preconditions have their own."""
    kinds = [
        error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, errors.RequestError)
        and error is not errors.RequestError
        and not issubclass(error, errors.PreconditionError)
    ]
    assert len(kinds) >= 7
    for error in kinds:
        assert PROBLEMS[error.problem].status == error.status, error


def test_the_marker_of_a_replay() -> None:
    """R17: the name that clients know."""
    assert REPLAYED == (b"idempotent-replayed", b"true")
