"""A record as one bytes object, for the memory store.

A row is the marshalled tuple of what stands in `pack`. It is never read by another process, nor by another Python:
what marshal does not promise is not needed here, and nothing else packs so fast.
"""

from __future__ import annotations

from marshal import dumps, loads
from typing import Any, Final, TypeAlias

from twicesafe.core.claims import Claim
from twicesafe.core.record import Effects, Instant, Record, RecordState, StoredResponse

LASTING: Final = "a claim's lease and retention last a microsecond at least"

_STATES: Final = tuple(RecordState)
CLAIMED, COMPLETED, UNKNOWN = range(3)
_EFFECTS: Final = tuple(Effects)
_CODES: Final = {effects: code for code, effects in enumerate(_EFFECTS)}

_FORMAT: Final = 1
"""Marshal's plainest: the later ones look for objects that come twice, which takes longer than it saves."""

Row: TypeAlias = tuple[Any, ...]
STATE, OWNER, EPOCH, LEASE_UNTIL, KEY_UNTIL, BODY_UNTIL, STATUS, HEADERS, BODY, SCOPE = range(10)
"""Where the parts of a row that are changed stand; status 0 is no answer yet. See pack."""


def pack(claim: Claim, epoch: int, now: Instant, previous: Record | None = None) -> bytes:
    """The row of a claim that is won. A take-over keeps what counts from the first claim."""
    _, scope, operation, hint, fingerprint, effects, owner, lease_us, key_us, request = claim
    if lease_us < 1 or key_us < 1:
        raise ValueError(LASTING)
    created_at, until = now, now + key_us
    if previous is not None:
        created_at, until, request = previous.created_at, previous.key_until, previous.request or request
    return dumps(
        (
            CLAIMED, owner, epoch, now + lease_us, until, until, 0, (), None,
            scope, operation, hint, fingerprint.value, _CODES[effects], created_at, request,
        ),
        _FORMAT,
    )  # fmt: skip


def unpack(packed: bytes) -> Row:
    """What was packed."""
    row: Row = loads(packed)  # noqa: S302 - packed by this process
    return row


def answered(row: Row, state: int, until: tuple[Instant, Instant, Instant], response: StoredResponse) -> bytes:
    """The row with an answer in it; `until` ends lease, key and body."""
    return dumps((state, *row[OWNER:LEASE_UNTIL], *until, *response, *row[SCOPE:]), _FORMAT)


def moved(
    row: Row,
    *,
    state: int,
    lease_until: Instant | None = None,
    key_until: Instant | None = None,
    keep_body: bool = True,
) -> bytes:
    """The row with some of its progress changed."""
    parts = list(row)
    parts[STATE] = state
    if lease_until is not None:
        parts[LEASE_UNTIL] = lease_until
    if key_until is not None:
        parts[KEY_UNTIL] = key_until
    if not keep_body:
        parts[BODY] = None
    return dumps(tuple(parts), _FORMAT)


def to_record(digest: bytes, row: Row) -> Record:
    """The record that a row stands for."""
    (
        state, owner, epoch, lease_until, key_until, body_until, status, headers, body,
        scope, operation, hint, fingerprint, effects, created_at, request,
    ) = row  # fmt: skip
    return Record(
        digest, scope, operation, hint, fingerprint, _EFFECTS[effects], _STATES[state], owner, epoch,
        created_at, lease_until, key_until, body_until,
        StoredResponse(status, headers, body) if status else None, None, None, request,
    )  # fmt: skip
