"""A record as an item, and back.

An item outlives the release that wrote it: attributes may be added, and none may change its meaning.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, TypeAlias

from twicesafe.core.claims import Claim
from twicesafe.core.record import Effects, Instant, Micros, Ownership, Record, RecordState, StoredResponse
from twicesafe.errors import StoreError
from twicesafe.stores.packing import pack_headers, unpack_headers
from twicesafe.stores.sql.rows import check_lasting, printable

Value: TypeAlias = dict[str, Any]
"""A value as DynamoDB spells it: {"S": text}, {"N": digits}, {"B": bytes}, {"BOOL": flag}."""
Item: TypeAlias = dict[str, Value]

KEY: Final = "digest"
EXPIRES: Final = "expires"
"""The attribute of DynamoDB's Time To Live, whole seconds since the epoch. On completed records only: nothing else may
vanish by itself."""
IN_TRANSACTION: Final = "in_transaction"
"""This claim's effects are collected by a transaction: nothing is done before its record is completed."""

SMALLEST_DEFLATED: Final = 1024
"""Writes are paid by the KiB."""

NO_KEY: Final = bytes(32)
"""No digest is all zeros: to ask for it is to ask for the time."""


def key(digest: bytes) -> Item:
    """The primary key."""
    return {KEY: {"B": digest}}


def number(value: int) -> Value:
    """A whole number."""
    return {"N": str(value)}


def of_claim(
    claim: Claim, epoch: int, starts: Instant, counts_from: Instant, *, in_transaction: bool, effects: Effects
) -> Item:
    """A whole new item. ValueError for a lease or a retention that would be over when it begins."""
    check_lasting(claim.lease_us)
    check_lasting(claim.key_us)
    until = number(counts_from + claim.key_us)
    item: Item = {
        **key(claim.digest),
        "scope": {"S": printable(claim.scope)},
        "operation": {"S": printable(claim.operation)},
        "key_hint": {"S": printable(claim.key_hint)},
        "fingerprint": {"B": claim.fingerprint.value},
        "effects": {"S": effects.value},
        "state": {"S": RecordState.CLAIMED.value},
        "owner": {"B": claim.owner},
        "epoch": number(epoch),
        "created_at": number(starts),
        "lease_until": number(counts_from + claim.lease_us),
        "key_until": until,
        "body_until": until,
    }
    if claim.request is not None:
        item["request"] = {"B": claim.request}
    if in_transaction:
        item[IN_TRANSACTION] = {"BOOL": True}
    return item


def of_response(response: StoredResponse) -> Item:
    """The attributes of an answer. A body is deflated where that pays."""
    item: Item = {"status": number(response.status), "headers": {"B": pack_headers(response.headers)}}
    body = response.body
    if body is not None:
        deflated = zlib.compress(body, 1) if len(body) >= SMALLEST_DEFLATED else body
        if len(deflated) < len(body) - len(body) // 8:
            item["deflated_body"] = {"B": deflated}
        else:
            item["body"] = {"B": body}
    return item


def of_ends(now: Instant, counts_from: Instant, key_us: Micros, body_us: Micros) -> Item:
    """When a completed record was completed, and when what it remembers ends."""
    key_until = counts_from + key_us
    return {
        "lease_until": number(now),
        "key_until": number(key_until),
        "body_until": number(counts_from + body_us),
        EXPIRES: number(-(-key_until // 1_000_000)),
    }


def to_record(item: Item) -> Record:
    """The record that an item stands for. StoreError for a damaged one."""
    try:
        return _to_record(item)
    except (LookupError, TypeError, ValueError, zlib.error) as error:
        raise StoreError(
            "a record in DynamoDB is damaged, or was written by a newer release: nothing runs under its key"
        ) from error


def _to_record(item: Item) -> Record:
    def text(name: str) -> str:
        found: str = item[name]["S"]
        return found

    def count(name: str) -> int:
        return int(item[name]["N"])

    def data(name: str) -> bytes | None:
        return bytes(item[name]["B"]) if name in item else None

    response = None
    if "status" in item:
        body = zlib.decompress(item["deflated_body"]["B"]) if "deflated_body" in item else data("body")
        response = StoredResponse(count("status"), unpack_headers(data("headers") or b""), body)
    return Record(
        digest=bytes(item[KEY]["B"]),
        scope=text("scope"),
        operation=text("operation"),
        key_hint=text("key_hint"),
        fingerprint=bytes(item["fingerprint"]["B"]),
        effects=Effects(text("effects")),
        state=RecordState(text("state")),
        owner=bytes(item["owner"]["B"]),
        epoch=count("epoch"),
        created_at=count("created_at"),
        lease_until=count("lease_until"),
        key_until=count("key_until"),
        body_until=count("body_until"),
        response=response,
        recovery_point=item["recovery_point"]["S"] if "recovery_point" in item else None,
        recovery_data=data("recovery_data"),
        request=data("request"),
    )


def in_flight(item: Item | None, now: Instant) -> bool:
    """Whether a transaction is at work on this key, as far as anybody can tell."""
    return (
        item is not None
        and IN_TRANSACTION in item
        and item["state"]["S"] == RecordState.CLAIMED.value
        and now < int(item["lease_until"]["N"])
    )


def owned_by(item: Item | None, own: Ownership) -> bool:
    """Whether this is the row of this very claim."""
    return (
        item is not None
        and bytes(item["owner"]["B"]) == own.owner
        and int(item["epoch"]["N"]) == own.epoch
        and bytes(item[KEY]["B"]) == own.digest
    )


def completed_by(item: Item | None, own: Ownership) -> bool:
    """Whether this very claim has been completed."""
    return owned_by(item, own) and item is not None and item["state"]["S"] == RecordState.COMPLETED.value
