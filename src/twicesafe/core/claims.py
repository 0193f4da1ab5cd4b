"""What an attempt asks a store for, and what it is told."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Instant, Micros, Ownership, Record


class RequestFingerprint(Protocol):
    """A request's fingerprint: its stored form, and the comparison with a stored one."""

    @property
    def value(self) -> bytes: ...

    def matches(self, stored: bytes, /) -> bool: ...


class Claim(NamedTuple):
    """A wish to become the one who runs. `owner` is 16 random bytes, new for every claim (R12).

    `seen` is for workers: the record as they found it when they looked for claims that were left behind. Where it is
    still so, a store may take it over without another look.
    """

    digest: bytes
    scope: str
    operation: str
    key_hint: str
    fingerprint: RequestFingerprint
    effects: Effects
    owner: bytes
    lease_us: Micros
    key_us: Micros
    request: bytes | None = None
    seen: Record | None = None


class Claimed(NamedTuple):
    """The claim is won: the row carries my owner token (I1). `previous` is what a lost run left behind, if any."""

    ownership: Ownership
    now: Instant
    previous: Record | None = None


class Existing(NamedTuple):
    """Somebody else was here. `record` is None where a rival's transaction is still invisible."""

    verdict: Verdict
    record: Record | None
    now: Instant


class Found(NamedTuple):
    """A row as it stands, expired or not, with the store's now to judge it by."""

    record: Record | None
    now: Instant
