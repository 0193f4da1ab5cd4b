"""What a store keeps about one scoped key. Facts only; judgments such as "stale" are made in lifecycle.py."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

Instant = int
"""Microseconds since the Unix epoch on the store's clock (I12). Never the application's clock."""

Micros = int
"""A duration in microseconds."""

HeaderLines = tuple[tuple[bytes, bytes], ...]
"""Header lines in the order they were sent; a name that came twice stands twice."""


class RecordState(StrEnum):
    """The stored states. "In progress", "stale", "expired" are computed from the store's now, never stored."""

    CLAIMED = "claimed"
    COMPLETED = "completed"
    UNKNOWN = "unknown"


class Effects(StrEnum):
    """What the operation declares about its effects, and so what a crash leaves behind (R13)."""

    TRANSACTIONAL = "transactional"
    """Claim, effect and answer are one local transaction: a crash leaves nothing. Run again."""
    RESUMABLE = "resumable"
    """Atomic phases with recovery points. Go on from the last one."""
    KEYED = "keyed"
    """Every downstream call carries a key derived from the record. Run again."""
    OPAQUE = "opaque"
    """Nothing is known. After a crash the outcome is unknown, held, and never silently run again."""


class StoredResponse(NamedTuple):
    """An answer as bytes and header lines. `body` None means done, but the body is not kept; b"" is an empty answer."""

    status: int
    headers: HeaderLines
    body: bytes | None


class Ownership(NamedTuple):
    """Proof of one claim. Every later write is conditioned on all three parts (I3)."""

    digest: bytes
    owner: bytes
    epoch: int


class Record(NamedTuple):
    """One row. `digest` is the only look-up value; `key_hint` is all of the key that is kept."""

    digest: bytes
    scope: str
    operation: str
    key_hint: str
    fingerprint: bytes
    effects: Effects
    state: RecordState
    owner: bytes
    epoch: int
    created_at: Instant
    lease_until: Instant
    key_until: Instant
    body_until: Instant
    response: StoredResponse | None = None
    """Set on a completed record. On a claimed one: the answer has begun to leave, its head is durable (I11)."""
    recovery_point: str | None = None
    recovery_data: bytes | None = None
    request: bytes | None = None

    @property
    def ownership(self) -> Ownership:
        return Ownership(self.digest, self.owner, self.epoch)
