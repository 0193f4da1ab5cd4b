"""A record as a row, and back."""

from __future__ import annotations

from typing import Any, Final

from twicesafe.core.claims import Claim
from twicesafe.core.record import Effects, Micros, Record, RecordState, StoredResponse
from twicesafe.errors import StoreError
from twicesafe.stores.packing import pack_headers, unpack_headers
from twicesafe.stores.steps import Row

COLUMNS: Final = (
    "digest", "scope", "operation", "key_hint", "fingerprint", "effects", "state", "owner", "epoch",
    "created_at", "lease_until", "key_until", "body_until",
    "status", "headers", "body", "recovery_point", "recovery_data", "request",
)  # fmt: skip

WIDTH: Final = len(COLUMNS)
"""Where the first column after a record stands."""


def to_record(row: Row) -> Record | None:
    """The record at the beginning of `row`, or None where its columns are NULL. StoreError for a damaged one."""
    digest = row[0]
    if digest is None:
        return None
    (
        scope, operation, key_hint, fingerprint, effects, state, owner, epoch,
        created_at, lease_until, key_until, body_until,
        status, headers, body, recovery_point, recovery_data, request,
    ) = row[1:WIDTH]  # fmt: skip
    try:
        declared, stands = Effects(effects), RecordState(state)
    except ValueError:
        raise StoreError(
            f"the record {digest.hex()[:8]}... is {effects!r} and {state!r}, which this release does not know: it was "
            "written by a newer one, or is damaged"
        ) from None
    return Record(
        digest=digest,
        scope=scope,
        operation=operation,
        key_hint=key_hint,
        fingerprint=fingerprint,
        effects=declared,
        state=stands,
        owner=owner,
        epoch=epoch,
        created_at=created_at,
        lease_until=lease_until,
        key_until=key_until,
        body_until=body_until,
        response=None if status is None else StoredResponse(status, unpack_headers(headers), body),
        recovery_point=recovery_point,
        recovery_data=recovery_data,
        request=request,
    )


def of_claim(claim: Claim) -> dict[str, Any]:
    """The parameters that describe what is claimed. ValueError for one that would be over when it begins."""
    check_lasting(claim.lease_us)
    check_lasting(claim.key_us)
    return {
        "digest": claim.digest,
        "scope": printable(claim.scope),
        "operation": printable(claim.operation),
        "key_hint": printable(claim.key_hint),
        "fingerprint": claim.fingerprint.value,
        "effects": claim.effects.value,
        "owner": claim.owner,
    }


def check_lasting(duration: Micros) -> None:
    """ValueError for a lease or a retention below a microsecond: it is "free now" to one and "for ever" to another."""
    if duration < 1:
        raise ValueError("a lease and a retention last a microsecond at least")


def of_response(response: StoredResponse, key_us: Micros, body_us: Micros) -> dict[str, Any]:
    """The parameters that describe an answer and how long it is kept."""
    status, headers, body = response
    return {
        "status": status,
        "headers": pack_headers(headers),
        "body": body,
        "key_us": key_us,
        "body_us": body_us,
        "purge_us": key_us if body is None or body_us > key_us else body_us,
    }


def of_seen(record: Record | None) -> dict[str, Any]:
    """The parameters that say which record, as it was seen, a compare-and-set may change. None: none at all."""
    if record is None:
        return _NOTHING_SEEN
    return {
        "seen_owner": record.owner,
        "seen_epoch": record.epoch,
        "seen_state": record.state.value,
        "seen_lease_until": record.lease_until,
        "seen_key_until": record.key_until,
        "seen_point": record.recovery_point or "",
    }


_NOTHING_SEEN: Final[dict[str, Any]] = {
    "seen_owner": b"",
    "seen_epoch": 0,
    "seen_state": "completed",
    "seen_lease_until": 0,
    "seen_key_until": 0,
    "seen_point": "",
}


def printable(text: str) -> str:
    """`text` as every database can keep it. Only people read it: look-ups are by digest."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
