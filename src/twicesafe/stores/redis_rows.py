"""A record as one string, for Redis. lua/layout.lua says where what stands, and is never changed: records outlive
releases, and another layout has another version in its first byte.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final, NamedTuple

from twicesafe.core.claims import Claim
from twicesafe.core.record import Effects, Instant, Ownership, Record, RecordState, StoredResponse
from twicesafe.errors import StoreError
from twicesafe.stores.packing import pack_headers, unpack_headers

VERSION: Final = 1

NO_BODY: Final = b"\0"
AT_THE_END: Final = b"\1"
APART: Final = b"\2"
"""Where an answer's body is. Apart: in a key of its own, because it goes before its record."""

_HEAD: Final = Struct(">BccQ16s4QHIIc")
HEAD: Final = _HEAD.size
_OWNERSHIP: Final = Struct(">Q16s")
_BEFORE_LEASE: Final = Struct(">BccQ16sQ")
_AFTER_LEASE: Final = Struct(">QQHIIc")
_STATUS: Final = Struct(">H")

_STATES: Final = {b"c": RecordState.CLAIMED, b"d": RecordState.COMPLETED, b"u": RecordState.UNKNOWN}
_LETTER: Final = {
    Effects.TRANSACTIONAL: b"t", Effects.RESUMABLE: b"r", Effects.KEYED: b"k", Effects.OPAQUE: b"o",
}  # fmt: skip
_EFFECTS: Final = {letter: effects for effects, letter in _LETTER.items()}

_PARTS: Final = 7
"""What a claim says: scope, operation, key hint, fingerprint, request, recovery point, its data."""
_LENGTHS: Final = Struct(f">{_PARTS}I")
_NONE: Final = (1 << 32) - 1
_OWNER_LENGTH: Final = 16


class Kept(NamedTuple):
    """A record as it was found. Its body, where that is apart, is still to be fetched."""

    record: Record
    head: bytes
    """What every change that is decided on this record is conditioned on."""
    apart: bytes | None
    """What its body is found by, where it is apart and its retention has not ended."""


class Lasting(NamedTuple):
    """The parts of a claim, checked and packed."""

    effects: bytes
    owner: bytes
    said: bytes


def packed(claim: Claim, previous: Record | None = None) -> Lasting:
    """ValueError for what would be over when it begins. A take-over keeps the request and the recovery point."""
    _, scope, operation, hint, fingerprint, effects, owner, lease_us, key_us, request, _ = claim
    if lease_us < 1 or key_us < 1:
        raise ValueError("a claim's lease and retention last a microsecond at least")
    if len(owner) != _OWNER_LENGTH:
        raise ValueError(f"an owner token has {_OWNER_LENGTH} bytes")
    point, data = None, None
    if previous is not None:
        request = previous.request or request
        point, data = previous.recovery_point, previous.recovery_data
    parts = (
        scope.encode("utf-8", "surrogatepass"), operation.encode("utf-8", "surrogatepass"), hint.encode(),
        fingerprint.value,
    )  # fmt: skip
    if request is None and point is None and data is None:
        said = b"".join((_LENGTHS.pack(*map(len, parts), _NONE, _NONE, _NONE), *parts))
    else:
        said = _said(*parts, request, None if point is None else point.encode(), data)
    return Lasting(_LETTER[effects], owner, said)


def _said(*parts: bytes | None) -> bytes:
    lengths = _LENGTHS.pack(*[_NONE if part is None else len(part) for part in parts])
    return b"".join((lengths, *[part for part in parts if part is not None]))


def taken_over(claim: Claim, seen: Record) -> tuple[bytes, bytes]:
    """What stands before and after the new lease where `claim` takes over `seen`."""
    effects, owner, said = packed(claim, seen)
    before = _BEFORE_LEASE.pack(VERSION, b"c", effects, seen.epoch + 1, owner, seen.created_at)
    after = _AFTER_LEASE.pack(seen.key_until, seen.key_until, 0, len(said), 0, NO_BODY)
    return before, after + said


def ownership(own: Ownership) -> bytes:
    """As it stands in a record."""
    return _OWNERSHIP.pack(own.epoch, own.owner)


def answer(response: StoredResponse) -> tuple[bytes, bytes]:
    """Status and header lines."""
    return _STATUS.pack(response.status), pack_headers(response.headers)


def unpack(digest: bytes, value: bytes, now: Instant) -> Kept:
    """The record that `value` is at `now`, without a body whose retention has ended. StoreError for a damaged one."""
    if value[:1] and value[0] != VERSION:
        raise StoreError("the record in Redis was written by a newer release of twicesafe: upgrade this one")
    try:
        return _unpack(digest, value, now)
    except (StructError, LookupError, UnicodeDecodeError, ValueError) as error:
        raise StoreError(
            f"the record {digest.hex()[:8]}... in Redis is damaged, so nothing runs under its key: find out what wrote "
            "to it, and delete it once its outcome is known"
        ) from error


def _unpack(digest: bytes, value: bytes, now: Instant) -> Kept:
    (
        _, state, effects, number, owner, created_at, lease_until, key_until, body_until,
        status, said_length, headers_length, place,
    ) = _HEAD.unpack_from(value)  # fmt: skip
    headers_at = HEAD + said_length
    body_at = headers_at + headers_length
    lengths = _LENGTHS.unpack_from(value, HEAD)
    parts: list[bytes | None] = []
    at = HEAD + _LENGTHS.size
    for length in lengths:
        if length == _NONE:
            parts.append(None)
        else:
            parts.append(value[at : at + length])
            at += length
    if at != headers_at or len(value) < body_at:
        raise ValueError("lengths do not agree")
    scope, operation, hint, fingerprint, request, point, data = parts
    if scope is None or operation is None or hint is None or fingerprint is None:
        raise ValueError("a part is missing")
    body = value[body_at:] if place == AT_THE_END and now < body_until else None
    record = Record(
        digest, scope.decode("utf-8", "surrogatepass"), operation.decode("utf-8", "surrogatepass"), hint.decode(),
        fingerprint, _EFFECTS[effects], _STATES[state], owner, number, created_at, lease_until, key_until, body_until,
        StoredResponse(status, unpack_headers(value[headers_at:body_at]), body) if status else None,
        None if point is None else point.decode(), data, request,
    )  # fmt: skip
    apart = value[body_at:] if place == APART and now < body_until else None
    return Kept(record, value[:HEAD], apart)
