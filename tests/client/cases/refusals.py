"""Answers that are final: recorded ones, refusals, and conflicts with what is."""

from __future__ import annotations

from tests.client.cases.acts import IN_PROGRESS, OK, REPLAY, zipped
from tests.client.cases.case import (
    BLIND,
    CHARGE,
    DELETE,
    GET,
    PATCH,
    PUT,
    Case,
    Otherwise,
    Trait,
    done,
    refused,
    unknown,
)
from tests.client.scripted import Act, answer, problem, reset_after_commit

PROBLEM = "application/problem+json"

RECORDED = [
    Case(CHARGE, "replayed 201", [REPLAY], 1, done(replayed=True), "an earlier process of the client's did it"),
    Case(
        CHARGE, "replayed 500", [answer(500, "Idempotent-Replayed: true")], 1, refused(500, replayed=True),
        "recorded: every further attempt would get the same",
    ),
    Case(
        CHARGE, "replayed 503 and Retry-After", [answer(503, "Idempotent-Replayed: true", "Retry-After: 1")], 1,
        refused(503, replayed=True), "what was recorded once is not mended by waiting",
    ),
    Case(
        CHARGE, "dropped, then replayed 503", [reset_after_commit, answer(503, "idempotent-replayed: TRUE")], 2,
        refused(503, replayed=True), "it answers for both attempts, in capitals too",
    ),
    Case(
        CHARGE, "dropped, then replayed 422", [reset_after_commit, answer(422, "Idempotent-Replayed: true")], 2,
        refused(422, replayed=True), "unlike a 422 that is not marked",
    ),
    Case(
        CHARGE, "replayed 409 and Retry-After", [answer(409, "Idempotent-Replayed: true", "Retry-After: 1")], 1,
        refused(409, replayed=True), "recorded: nothing is at work any more",
    ),
    Case(
        CHARGE, "500, and not replayed", [answer(500, "Idempotent-Replayed: false"), OK], 2, done(),
        "the marker says so only where it says true",
    ),
    Case(
        CHARGE, "replayed 302", [answer(302, "Location: /c/1", "Idempotent-Replayed: true")], 1,
        done(302, replayed=True), "recorded: whatever it was, it was done",
        needs=Trait.SHOWN, otherwise=Otherwise(1, 1, unknown()),
    ),
    Case(
        CHARGE, "a failure that will be replayed", [problem(500, "handler-failed", retryable=False)], 1, refused(500),
        "the first of many equal answers",
    ),
]  # fmt: skip

FINAL = [
    *[
        Case(CHARGE, f"{status}", [answer(status)], 1, refused(status), "asked again, it is refused again")
        for status in (400, 401, 402, 403, 404, 412, 422)
    ],
    *[
        Case(CHARGE, f"dropped, then {status}", [reset_after_commit, answer(status)], 2, unknown(status), why)
        for status, why in [
            (401, "logged out since; and the first attempt?"),
            (404, "moved since; and the first attempt?"),
            (412, "changed by the first attempt, or by somebody else?"),
            (422, "the key was used: by the first attempt?"),
        ]
    ],
    Case(GET, "dropped, then missing", [reset_after_commit, answer(404)], 2, refused(404), "that is the answer"),
    Case(DELETE, "404", [answer(404)], 1, refused(404), "no attempt before it can have deleted it"),
    Case(PATCH, "412", [answer(412)], 1, refused(412), "changed by somebody else"),
    Case(BLIND, "402", [answer(402)], 1, refused(402), "declined"),
]  # fmt: skip

CONFLICTS = [
    Case(CHARGE, "409", [answer(409)], 1, refused(409), "about the state of things, not about an attempt"),
    Case(
        CHARGE, "409, not retryable, and Retry-After", [problem(409, "closed", "Retry-After: 1", retryable=False)], 1,
        refused(409), "the problem says it outright",
    ),
    Case(
        CHARGE, "409, retryable", [problem(409, "balance-locked", retryable=True), OK], 2, done(),
        "the problem says it outright",
    ),
    Case(
        CHARGE, "outcome unknown", [problem(409, "outcome-unknown", "Retry-After: 1", retryable=True)], 1,
        unknown(409), "the server does not know either, and somebody has to settle it",
    ),
    Case(
        CHARGE, "in progress, then outcome unknown", [IN_PROGRESS, problem(409, "outcome-unknown")], 2, unknown(409),
        "the attempt that was at work died", waits=[(1, 1.5)],
    ),
    Case(
        CHARGE, "already done", [problem(409, "already-done", "Location: /charges/1", retryable=False)], 1,
        done(409, replayed=True), "the answer was another caller's, or is gone",
    ),
    Case(
        PUT, "already done", [problem(409, "already-done")], 1, refused(409), "without a key it is a word like another"
    ),
    Case(
        CHARGE, "409, and no new key", [problem(409, "odd", safe_new_key=False)], 1, unknown(409),
        "under this key it may have happened",
    ),
    Case(
        CHARGE, "key reused", [problem(422, "key-reused", retryable=False)], 1, unknown(422),
        "the key was used: an earlier process may have charged, with other bytes",
    ),
    Case(
        CHARGE, "key reused, by the draft's title",
        [answer(400, json_={"type": "about:blank", "title": "Idempotency-Key is already used"}, kind=PROBLEM)], 1,
        unknown(400), "whatever the status and the type",
    ),
    Case(
        CHARGE, "dropped, then key reused", [reset_after_commit, problem(422, "key-reused", safe_new_key=False)], 2,
        unknown(422), "no new key is made of it",
    ),
    Case(
        CHARGE, "402, and no new key", [problem(402, "declined", safe_new_key=False)], 1, unknown(402),
        "under this key it may have happened",
    ),
]  # fmt: skip

NOT_RETRYABLE = {"type": "urn:pay:closed", "retryable": False}


def unread(body: bytes) -> Act:
    """A 503 with a problem document that is none."""
    return answer(503, f"Content-Type: {PROBLEM}", body=body)


TOLD = [
    Case(
        CHARGE, "400, retryable", [problem(400, "body-incomplete", retryable=True), OK], 2, done(),
        "the problem knows more than the status",
    ),
    *[
        Case(
            CHARGE, f"{status}, retryable", [problem(status, "odd", retryable=True)], 1, refused(status),
            "however it is marked: the same request gets the same answer",
        )
        for status in (401, 403, 404, 422)
    ],
    Case(
        CHARGE, "503, not retryable", [problem(503, "closed", retryable=False)], 1, unknown(503),
        "no further attempt, and no certainty",
    ),
    Case(
        CHARGE, "429, not retryable", [problem(429, "quota", "Retry-After: 1", retryable=False)], 1, refused(429),
        "this month's quota does not come back in a second",
    ),
    Case(
        CHARGE, "503, not retryable, in a coding", [zipped(503, json_=NOT_RETRYABLE)], 1, unknown(503),
        "the document is the same",
    ),
    Case(
        CHARGE, "503, not retryable, with a charset",
        [answer(503, json_=NOT_RETRYABLE, kind="Application/Problem+JSON; charset=utf-8")], 1, unknown(503),
        "the media type is the same",
    ),
    Case(
        CHARGE, "503, not retryable, in plain text", [answer(503, json_=NOT_RETRYABLE, kind="text/plain"), OK], 2,
        done(), "a log line that a proxy sent is no problem document",
    ),
    Case(
        CHARGE, "503, retryable: no", [problem(503, "closed", retryable="no"), OK], 2, done(),
        "words are neither true nor false",
    ),
    Case(CHARGE, "503, half a document", [unread(b'{"retryable": fal'), OK], 2, done(), "the status counts"),
    Case(CHARGE, "503, a document in a list", [unread(b'[{"retryable": false}]'), OK], 2, done(), "the status counts"),
    Case(CHARGE, "503, brackets without end", [unread(b"[" * 30_000), OK], 2, done(), "nothing it can hold raises"),
    Case(
        CHARGE, "503, a document of a megabyte", [problem(503, "closed", retryable=False, detail="x" * 2**20), OK], 2,
        done(), "it is not read to judge it",
    ),
]  # fmt: skip

CASES = [*RECORDED, *FINAL, *CONFLICTS, *TOLD]
