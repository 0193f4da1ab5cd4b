"""A completed record as one bytes object, for the memory store.

When it ends stands in front at fixed places; the rest is marshalled, but for the answer's body, which is as large as it
likes and is kept beside, uncopied. A row is never read by another process, nor by another Python: what marshal does not
promise is not needed here, and nothing else packs so fast.
"""

from __future__ import annotations

from marshal import dumps, loads
from struct import Struct
from typing import Final, TypeAlias

from twicesafe.core.claims import Claim
from twicesafe.core.record import Effects, Instant, Record, RecordState, StoredResponse

_EFFECTS: Final = {effects.value: effects for effects in Effects}

_HEAD: Final = Struct("=qq")
_SIZE: Final = _HEAD.size

_FORMAT: Final = 1
"""Marshal's plainest: the later ones look for objects that come twice, which takes longer than it saves."""

Begun: TypeAlias = tuple[Claim, Instant]
"""A key's first claim, and when it was won: nearly all are completed before anybody looks at their record."""

ends_of = _HEAD.unpack_from
"""When the key's and when the body's retention ends."""


def begun(live: Begun) -> Record:
    """The record of a claim."""
    (digest, scope, operation, hint, fingerprint, effects, owner, lease_us, key_us, request, _), now = live
    return Record(
        digest, scope, operation, hint, fingerprint.value, effects, RecordState.CLAIMED, owner, 1,
        now, now + lease_us, now + key_us, now + key_us, request=request,
    )  # fmt: skip


def pack(
    live: Record | Begun, response: StoredResponse, now: Instant, key_until: Instant, body_until: Instant
) -> bytes:
    """The row of what is completed now; without the body."""
    if isinstance(live, Record):
        _, scope, operation, hint, fingerprint, effects, _, owner, epoch, created_at = live[:10]
        said = (
            scope, operation, hint, fingerprint, effects.value, owner, epoch, created_at, now,
            response[0], response[1], *live[14:],
        )  # fmt: skip
    else:
        (_, scope, operation, hint, wanted, effects, owner, _, _, request, _), created_at = live
        said = (
            scope, operation, hint, wanted.value, str(effects), owner, 1, created_at, now,
            response[0], response[1], None, None, request,
        )  # fmt: skip
    return _HEAD.pack(key_until, body_until) + dumps(said, _FORMAT)


def unpack(digest: bytes, packed: bytes, body: bytes | None) -> Record:
    """The record that a row stands for."""
    key_until, body_until = ends_of(packed)
    # What is unmarshalled was packed by this process.
    (
        scope, operation, hint, fingerprint, effects, owner, epoch, created_at, lease_until,
        status, headers, recovery_point, recovery_data, request,
    ) = loads(packed[_SIZE:])  # noqa: S302  # fmt: skip
    return tuple.__new__(
        Record,
        (
            digest, scope, operation, hint, fingerprint, _EFFECTS[effects], RecordState.COMPLETED, owner, epoch,
            created_at, lease_until, key_until, body_until,
            tuple.__new__(StoredResponse, (status, headers, body)), recovery_point, recovery_data, request,
        ),
    )  # fmt: skip
