"""Problem documents and header names: the only place that spells them.

`retryable` says that the same request with the same key may succeed later. `safe_new_key` says whether a new key for
the same intent could do it twice: false means ask again with the key you have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from twicesafe.core.record import HeaderLines

REPLAYED: Final = (b"idempotent-replayed", b"true")
"""Stripe's, ACP's, Whop's and ePay's marker."""

RETRY_AFTER: Final = b"retry-after"

ATTEMPT: Final = b"twicesafe-attempt"
"""Which attempt at its operation a request is, from 1. For logs and traces; it is no part of a fingerprint."""
ATTEMPT_LIMIT: Final = b"twicesafe-attempt-limit"
"""How many attempts the operation may have, so that its receiver knows from the first one on who retries."""
OPERATION_ID: Final = b"twicesafe-operation"
"""One for all attempts that one call makes at an operation. It says nothing of the key."""

PROBLEM_JSON: Final = b"application/problem+json"

CORS_ATTEMPT_HEADERS: Final = ("Twicesafe-Attempt", "Twicesafe-Attempt-Limit", "Twicesafe-Operation")
"""What an attempt says of itself, as a cross-origin page must be allowed to."""
CORS_ALLOW_HEADERS: Final = ("Idempotency-Key", *CORS_ATTEMPT_HEADERS)
"""What a cross-origin page must be allowed to send."""
CORS_EXPOSE_HEADERS: Final = ("Idempotent-Replayed", "Idempotency-Key-Retention", "Retry-After", "Location")
"""What a cross-origin page must be allowed to read."""


class ProblemType(NamedTuple):
    """One kind of problem. Titles of the draft's three are the draft's own."""

    status: int
    title: str
    retryable: bool
    safe_new_key: bool


PROBLEMS: Final[Mapping[str, ProblemType]] = MappingProxyType(
    {
        "key-missing": ProblemType(400, "Idempotency-Key is missing", False, True),
        "key-invalid": ProblemType(400, "Idempotency-Key is malformed", False, True),
        "body-too-large": ProblemType(413, "The request body is too large", False, True),
        "body-incomplete": ProblemType(400, "The request body ended early", True, False),
        "caller-unknown": ProblemType(403, "The caller could not be identified", False, False),
        "too-many-keys": ProblemType(429, "Too many new Idempotency-Keys", True, False),
        "key-reused": ProblemType(422, "Idempotency-Key is already used", False, False),
        "in-progress": ProblemType(409, "A request is outstanding for this Idempotency-Key", True, False),
        "outcome-unknown": ProblemType(409, "The outcome of the first attempt is unknown", True, False),
        "already-done": ProblemType(409, "A request with this Idempotency-Key was carried out already", False, False),
        "first-sent-invalid": ProblemType(400, "The time of the first attempt is missing or malformed", False, False),
        "first-sent-expired": ProblemType(412, "The first attempt is too long ago", False, False),
        "result-not-kept": ProblemType(200, "Already done; the response is no longer kept", False, False),
        "handler-failed": ProblemType(500, "The operation failed", False, False),
        "store-unavailable": ProblemType(503, "The request could not be protected, so nothing was done", True, False),
        "store-misconfigured": ProblemType(500, "The server is not set up to protect requests", False, False),
        "commit-unknown": ProblemType(
            503, "The answer to the commit was lost: ask again with the same key", True, False
        ),
        "interrupted": ProblemType(409, "The first attempt broke off and may be made again", True, False),
        "key-unknown": ProblemType(404, "Nothing is known of this Idempotency-Key", True, False),
        "key-closed": ProblemType(410, "This Idempotency-Key is closed", False, True),
        "lookup-unavailable": ProblemType(503, "The Idempotency-Key could not be looked up", True, False),
        "not-forwarded": ProblemType(400, "The gateway does not pass this request on", False, False),
        "upstream-unreachable": ProblemType(503, "The service could not be reached, so nothing was sent", True, False),
        "upstream-failed": ProblemType(502, "The service did not answer to the end", True, False),
    }
)

DETAILS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "key-missing": "This operation requires {header}. Send a new UUID for every new intent.",
        "too-many-keys": "This caller, or all callers together, have used as many new keys as the server takes on for "
        "now. Nothing was run and nothing is remembered of this request. Ask again with the same key after the time in "
        "Retry-After.",
        "key-reused": "{header} was already used for another request. It must not be reused across different "
        "payloads, methods or addresses.",
        "in-progress": "A request with the same {header} is being processed. Ask again with the same key "
        "after the time in Retry-After.",
        "outcome-unknown": "Nobody can prove yet whether the first attempt took effect. Ask again later with the same "
        "key; a new key could do it twice.",
        "already-done": "Nothing was run again. Location is that of the first answer, if it had one.",
        "result-not-kept": "The operation was done under this {header} with the status of this answer, but its body is "
        "not kept. Nothing was run again.",
        "handler-failed": "The operation failed with an error of the server. This is the answer to every retry with "
        "this {header}.",
        "store-unavailable": "The server cannot remember this {header} right now. Nothing was done. Ask again with the "
        "same key.",
        "store-misconfigured": "The server's memory for {header} is not set up. Nothing was done. Asking "
        "again does not help before its operator has acted; the server's log says how.",
        "commit-unknown": "The operation either happened whole or not at all. Ask again with the same {header} to "
        "learn which.",
        "interrupted": "The first attempt under this {header} ended before it was done. Send the same request again "
        "with the same key.",
        "key-unknown": "No request under this {header} has been carried out in the time for which keys are remembered. "
        "One that is still on its way may be: send the same request again with the same key, or have the key closed "
        "before doing it otherwise.",
        "key-closed": "No request under this {header} was carried out, and none will be, in the time for which keys "
        "are remembered. What was to be done may be asked for under a new key.",
        "lookup-unavailable": "The server cannot look at this {header} right now, and says nothing of what became of "
        "it. Ask again.",
        "upstream-unreachable": "The service behind this gateway could not be reached. Nothing was sent to it.",
        "upstream-failed": "The request was passed on, and its answer did not come back whole. It may have been "
        "carried out. What was sent with {header} may be sent again with the same.",
    }
)


def problem(
    kind: str,
    *,
    header: str,
    base: str,
    detail: str | None = None,
    status: int | None = None,
    retry_after: int | None = None,
    final: bool | None = None,
) -> tuple[int, HeaderLines, bytes]:
    """Status, header lines and body of a problem document. It never repeats anything of any request (R21).

    `final` stands in problems of a look-up: whether nothing can come under the key any more.
    """
    shape = PROBLEMS[kind]
    code = shape.status if status is None else status
    body = json.dumps(
        {
            "type": base + kind,
            "title": shape.title,
            "status": code,
            "detail": DETAILS[kind].format(header=header) if detail is None else detail,
            "retryable": shape.retryable,
            "safe_new_key": shape.safe_new_key,
            **({} if final is None else {"final": final}),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode("utf-8")
    lines: list[tuple[bytes, bytes]] = [
        (b"content-type", PROBLEM_JSON),
        (b"content-language", b"en"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    if retry_after is not None:
        lines.append((RETRY_AFTER, b"%d" % retry_after))
    return code, tuple(lines), body
