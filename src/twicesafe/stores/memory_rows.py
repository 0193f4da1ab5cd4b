"""A record as one bytes object, for the memory store.

What changes stands in front at fixed places, then the answer, then what the claim said, marshalled: an answer is
written, and ownership looked at, without taking the rest apart. A row is never read by another process, nor by another
Python: what marshal does not promise is not needed here, and nothing else packs so fast.
"""

from __future__ import annotations

from marshal import dumps, loads
from struct import Struct
from typing import Any, Final, TypeAlias

from twicesafe.core.claims import Claim
from twicesafe.core.record import Effects, Instant, Record, RecordState, StoredResponse

LASTING: Final = "a claim's lease and retention last a microsecond at least"

_STATES: Final = tuple(RecordState)
CLAIMED, COMPLETED, UNKNOWN = range(3)
_EFFECTS: Final = tuple(Effects)

Head: TypeAlias = tuple[Any, ...]
EPOCH, OWNER, STATE, LEASE_UNTIL, KEY_UNTIL, BODY_UNTIL, STATUS, HEADERS, BODY = range(9)
"""Where the parts of a head stand. Status 0 is no answer yet; the last two are lengths in bytes, NO_BODY for none."""
NO_BODY: Final = -1

_HEAD: Final = Struct("=Q16sBqqqHIq")
_SIZE: Final = _HEAD.size
_OWNER_LENGTH: Final = 16

_FORMAT: Final = 1
"""Marshal's plainest: the later ones look for objects that come twice, which takes longer than it saves."""

head_of = _HEAD.unpack_from
"""The head of a row."""


def pack(claim: Claim, epoch: int, now: Instant, previous: Record | None = None) -> bytes:
    """The row of a claim that is won. A take-over keeps what counts from the first claim."""
    _, scope, operation, hint, fingerprint, effects, owner, lease_us, key_us, request = claim
    if lease_us < 1 or key_us < 1:
        raise ValueError(LASTING)
    if len(owner) != _OWNER_LENGTH:
        raise ValueError(f"an owner token has {_OWNER_LENGTH} bytes")
    created_at, until = now, now + key_us
    if previous is not None:
        created_at, until, request = previous.created_at, previous.key_until, previous.request or request
    said = (scope, operation, hint, fingerprint.value, _EFFECTS.index(effects), created_at, request)
    return _HEAD.pack(epoch, owner, CLAIMED, now + lease_us, until, until, 0, 0, NO_BODY) + dumps(said, _FORMAT)


def answered(
    packed: bytes, head: Head, state: int, until: tuple[Instant, Instant, Instant], response: StoredResponse
) -> bytes:
    """The row with an answer in it; `until` ends lease, key and body."""
    epoch, owner, _, _, _, _, _, headers_length, body_length = head
    status, headers, body = response
    lines = dumps(headers, _FORMAT)
    said = packed[_SIZE + headers_length + max(body_length, 0) :]
    if body is None:
        return b"".join((_HEAD.pack(epoch, owner, state, *until, status, len(lines), NO_BODY), lines, said))
    return b"".join((_HEAD.pack(epoch, owner, state, *until, status, len(lines), len(body)), lines, body, said))


def moved(
    packed: bytes,
    head: Head,
    *,
    state: int,
    lease_until: Instant | None = None,
    key_until: Instant | None = None,
) -> bytes:
    """The row with some of its progress changed."""
    parts = list(head)
    parts[STATE] = state
    if lease_until is not None:
        parts[LEASE_UNTIL] = lease_until
    if key_until is not None:
        parts[KEY_UNTIL] = key_until
    return _HEAD.pack(*parts) + packed[_SIZE:]


def without_body(packed: bytes, head: Head) -> bytes:
    """The row without its answer's body."""
    body_at = _SIZE + head[HEADERS]
    return b"".join((_HEAD.pack(*head[:BODY], NO_BODY), packed[_SIZE:body_at], packed[body_at + head[BODY] :]))


def to_record(digest: bytes, packed: bytes) -> Record:
    """The record that a row stands for."""
    epoch, owner, state, lease_until, key_until, body_until, status, headers_length, body_length = head_of(packed)
    body_at = said_at = _SIZE + headers_length
    body = response = None
    if body_length >= 0:
        said_at += body_length
        body = packed[body_at:said_at]
    # What is unmarshalled was packed by this process.
    if status:
        response = StoredResponse(status, loads(packed[_SIZE:body_at]), body)  # noqa: S302
    scope, operation, hint, fingerprint, effects, created_at, request = loads(packed[said_at:])  # noqa: S302
    return Record(
        digest, scope, operation, hint, fingerprint, _EFFECTS[effects], _STATES[state], owner, epoch,
        created_at, lease_until, key_until, body_until, response, None, None, request,
    )  # fmt: skip
