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

PROBLEM_JSON: Final = b"application/problem+json"

CORS_ALLOW_HEADERS: Final = ("Idempotency-Key",)
"""What a cross-origin page must be allowed to send."""
CORS_EXPOSE_HEADERS: Final = ("Idempotent-Replayed", "Retry-After", "Location")
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
        "key-reused": ProblemType(422, "Idempotency-Key is already used", False, False),
        "in-progress": ProblemType(409, "A request is outstanding for this Idempotency-Key", True, False),
        "outcome-unknown": ProblemType(409, "The outcome of the first attempt is unknown", True, False),
        "result-not-kept": ProblemType(200, "Already done; the response is no longer kept", False, False),
        "handler-failed": ProblemType(500, "The operation failed", False, False),
        "store-unavailable": ProblemType(503, "The request could not be protected, so nothing was done", True, False),
        "store-misconfigured": ProblemType(500, "The server is not set up to protect requests", False, False),
        "commit-unknown": ProblemType(
            503, "The answer to the commit was lost: ask again with the same key", True, False
        ),
    }
)

DETAILS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "key-missing": "This operation requires the header {header}. Send a new UUID for every new intent.",
        "key-reused": "{header} was already used for another request. It must not be reused across different "
        "payloads, methods or addresses.",
        "in-progress": "A request with the same {header} is being processed. Ask again with the same key "
        "after the time in Retry-After.",
        "outcome-unknown": "Nobody can prove yet whether the first attempt took effect. Ask again later with the same "
        "key; a new key could do it twice.",
        "result-not-kept": "The operation was done under this {header} with the status of this answer, but its body is "
        "not kept. Nothing was run again.",
        "handler-failed": "The operation failed with an error of the server. This is the answer to every retry with "
        "this {header}.",
        "store-unavailable": "The server cannot remember this {header} right now. Nothing was done. Ask again with the "
        "same key.",
        "store-misconfigured": "The server's memory for the header {header} is not set up. Nothing was done. Asking "
        "again does not help before its operator has acted; the server's log says how.",
        "commit-unknown": "The operation either happened whole or not at all. Ask again with the same {header} to "
        "learn which.",
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
) -> tuple[int, HeaderLines, bytes]:
    """Status, header lines and body of a problem document. It never repeats anything of any request (R21)."""
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
