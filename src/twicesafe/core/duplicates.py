"""What is answered to a duplicate that does not run."""

from __future__ import annotations

from typing import Final

from twicesafe.core.lifecycle import Verdict
from twicesafe.core.policy import Policy
from twicesafe.core.record import Instant, Micros, Record, StoredResponse
from twicesafe.core.replay import pointers
from twicesafe.core.steps import Answer

BODILESS: Final = frozenset({204, 205, 304})
"""Statuses whose answers have no body."""
ONE_SECOND: Final[Micros] = 1_000_000
_OF_THE_BODY: Final = frozenset(
    {b"etag", b"last-modified", b"accept-ranges", b"digest", b"repr-digest", b"cache-control"}
)
"""Besides Content-*: what describes a body that is no longer kept, and what its replacement says for itself."""


def answer_for(verdict: Verdict, record: Record | None, now: Instant, policy: Policy, usual_us: Micros) -> Answer:
    """What a duplicate is told that does not run."""
    stored = None if record is None else record.response
    if verdict in (Verdict.REPLAY, Verdict.GONE):
        if policy.refuse_duplicates and (stored is None or stored.status < 400):
            refused = problem_answer("already-done", policy)
            return refused._replace(headers=(*refused.headers, *pointers(stored.headers if stored else ())))
        if verdict is Verdict.GONE:
            return _without_body(stored, policy)
        assert stored is not None and stored.body is not None
        return Answer(stored.status, (*stored.headers, *policy.marked), stored.body, "replayed", stored=stored)
    if verdict is Verdict.IN_PROGRESS:
        left = ONE_SECOND if record is None else record.lease_until - now
        return problem_answer(
            "in-progress", policy, status=policy.in_progress_status, retry_after=retry_after(left, usual_us)
        )
    if verdict is Verdict.MISMATCH:
        return problem_answer("key-reused", policy, status=policy.mismatch_status)
    return problem_answer("outcome-unknown", policy)


def _without_body(stored: StoredResponse | None, policy: Policy) -> Answer:
    """Done: the status and the header lines still tell how; the body is replaced by a document that says so (R18)."""
    status, kept, _ = stored or StoredResponse(200, (), None)
    headers = tuple(
        [line for line in kept if not line[0].lower().startswith(b"content-") and line[0].lower() not in _OF_THE_BODY]
    )
    # A body past its retention may still lie in its row.
    known = None if stored is None else stored._replace(body=None)
    if status in BODILESS:
        return Answer(status, (*headers, *policy.marked), b"", "result-not-kept", stored=known)
    _, lines, body = policy.problem("result-not-kept", status=status)
    return Answer(status, (*headers, *lines, *policy.marked), body, "result-not-kept", stored=known)


def retry_after(lease_left: Micros, usual_us: Micros) -> int:
    """Whole seconds, at least 1: the smaller of the lease left and what the operation usually takes."""
    wait = min(lease_left, usual_us or ONE_SECOND)
    return max(1, -(-wait // ONE_SECOND))


def problem_answer(kind: str, policy: Policy, *, status: int | None = None, retry_after: int | None = None) -> Answer:
    """A problem document as an answer."""
    return Answer(*policy.problem(kind, status=status, retry_after=retry_after), kind)
