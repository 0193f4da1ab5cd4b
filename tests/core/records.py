"""Records for tests, plain where nothing else is said, and strategies for all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.lifecycle import Standing
from twicesafe.core.record import Effects, Record, RecordState, StoredResponse

NOW = 1_000_000_000
SECOND = 1_000_000

MINE = GivenFingerprint(b"\1" * 33)
OTHER = GivenFingerprint(b"\2" * 33)
ME = b"m" * 16
THEM = b"t" * 16
DIGEST = b"d" * 32

ANSWER = StoredResponse(201, ((b"location", b"/charges/1"), (b"content-type", b"text/plain")), b"charged")
HEAD = ANSWER._replace(body=None)


def record(**changes: Any) -> Record:
    """A live claim of THEM for the request MINE."""
    plain: dict[str, Any] = {
        "digest": DIGEST,
        "scope": "user",
        "operation": "charge",
        "key_hint": "…9324",
        "fingerprint": MINE.value,
        "effects": Effects.OPAQUE,
        "state": RecordState.CLAIMED,
        "owner": THEM,
        "epoch": 1,
        "created_at": NOW - 5 * SECOND,
        "lease_until": NOW + 30 * SECOND,
        "key_until": NOW + 3600 * SECOND,
        "body_until": NOW + 1800 * SECOND,
    }
    return Record(**plain | changes)


def standing_so(where: Standing, **changes: Any) -> Record:
    """A record that stands so at NOW."""
    shape: dict[Standing, dict[str, Any]] = {
        Standing.FREE: {"state": RecordState.COMPLETED, "response": ANSWER, "key_until": NOW, "body_until": NOW},
        Standing.CLAIMED: {},
        Standing.STALE: {"lease_until": NOW},
        Standing.ANSWERED: {"lease_until": NOW, "response": HEAD},
        Standing.COMPLETED: {"state": RecordState.COMPLETED, "response": ANSWER},
        Standing.TOMBSTONE: {"state": RecordState.COMPLETED, "response": ANSWER, "body_until": NOW},
        Standing.UNKNOWN: {"state": RecordState.UNKNOWN, "lease_until": NOW},
    }
    return record(**shape[where] | changes)


near = st.integers(NOW - 3, NOW + 3)
"""Instants about NOW, so that boundaries are met often."""

records: st.SearchStrategy[Record] = st.builds(
    record,
    fingerprint=st.sampled_from([MINE.value, OTHER.value]),
    effects=st.sampled_from(Effects),
    state=st.sampled_from(RecordState),
    owner=st.sampled_from([ME, THEM]),
    lease_until=near,
    key_until=near,
    body_until=near,
    response=st.sampled_from([None, HEAD, ANSWER, ANSWER._replace(body=b"")]),
)
