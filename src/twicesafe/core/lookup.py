"""What became of a key, for a caller who asks without sending its request again. Generators, as core.exchange is one.

Looking changes nothing. Closing claims a key that was never used and completes it, so that whatever arrives later is
refused; then, and only then, may the caller act under a new key. Both are told in problem documents with a member
`final`: whether nothing can come under the key any more.
"""

from __future__ import annotations

from typing import Final

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.duplicates import answer_for, problem_answer
from twicesafe.core.fingerprint import Fingerprint, FingerprintRule, RequestFacts
from twicesafe.core.keys import ScopedKey
from twicesafe.core.lifecycle import Standing, Verdict, abandoned, standing
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects, HeaderLines, Instant, Record, StoredResponse
from twicesafe.core.steps import Answer, Complete, Exchange, Notice, Read
from twicesafe.errors import StoreError

CLOSED: Final = Fingerprint(RequestFacts("", b"", b"", (), b""), FingerprintRule())
"""Of no request, because every request has a method; by an algorithm that every release knows."""

_OF_CACHES: Final = frozenset({b"cache-control", b"expires", b"pragma"})
"""Written for the answer to another method, whose answers are not kept."""


def closing(key: ScopedKey, operation: Operation, owner: bytes) -> Claim:
    """The claim by which a key is closed. Whoever closes does nothing else, so a closing that was cut off may be made
    again."""
    policy = operation.policy
    return Claim(
        key.digest, key.scope, operation.name, key.hint, CLOSED, Effects.KEYED, owner, policy.lease_us, policy.key_us
    )


def look_up(digest: bytes, policy: Policy) -> Exchange:
    """What is known of the key with this digest."""
    try:
        found = yield Read(digest)
    except StoreError as error:
        return (yield from _unavailable(policy, error))
    assert type(found) is Found, found
    yield Notice("looked_up")
    return _known(found.record, found.now, policy)


def close(claim: Claim, policy: Policy) -> Exchange:
    """Close the key where nothing was ever done under it. Otherwise what is known of it, as `look_up` tells it."""
    try:
        found = yield claim
        if type(found) is Claimed:
            status, headers, body = policy.problem("key-closed")
            yield Complete(found.ownership, StoredResponse(status, headers, body), policy.key_us, policy.body_us)
            yield Notice("key.closed")
            return _unused(policy, final=True)
    except StoreError as error:
        return (yield from _unavailable(policy, error))
    assert type(found) is Existing, found
    yield Notice("looked_up")
    if found.record is None:
        # A rival's transaction is under way.
        return answer_for(found.verdict, None, found.now, policy, 0)
    return _known(found.record, found.now, policy)


def _known(record: Record | None, now: Instant, policy: Policy) -> Answer:
    where = standing(record, now)
    if record is None or where is Standing.FREE:
        return _unused(policy, final=False)
    if record.fingerprint == CLOSED.value:
        return _unused(policy, final=where in (Standing.COMPLETED, Standing.TOMBSTONE))
    verdict = _VERDICTS.get(where)
    if verdict is None:
        kind = "outcome-unknown" if abandoned(record, now) is Verdict.HOLD else "interrupted"
        return problem_answer(kind, policy)
    answer = answer_for(verdict, record, now, policy, 0)
    return answer._replace(headers=_uncached(answer.headers))


_VERDICTS: Final = {
    Standing.CLAIMED: Verdict.IN_PROGRESS,
    Standing.ANSWERED: Verdict.GONE,
    Standing.COMPLETED: Verdict.REPLAY,
    Standing.TOMBSTONE: Verdict.GONE,
    Standing.UNKNOWN: Verdict.UNKNOWN,
}
"""What an attempt would be told that found the record so. Of a stale claim that depends on its effects."""


def _uncached(headers: HeaderLines) -> HeaderLines:
    return (*[line for line in headers if line[0].lower() not in _OF_CACHES], (b"cache-control", b"no-store"))


def _unused(policy: Policy, *, final: bool) -> Answer:
    kind = "key-closed" if final else "key-unknown"
    return Answer(*policy.problem(kind, status=404, final=final), kind)


def _unavailable(policy: Policy, error: StoreError) -> Exchange:
    yield Notice("store.unavailable", loud=True, error=error)
    return problem_answer("lookup-unavailable", policy, retry_after=1)
