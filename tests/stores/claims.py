"""Claims and answers for the tests of the SQL stores."""

from __future__ import annotations

from hashlib import sha256
from os import urandom
from typing import Any

from twicesafe.core.claims import Claim
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.record import Effects, StoredResponse

SECOND = 1_000_000
LEASE = 30 * SECOND
KEY = 3600 * SECOND
BODY = 600 * SECOND

REQUEST = GivenFingerprint(b"\x01" + b"r" * 32)
OTHER_REQUEST = GivenFingerprint(b"\x01" + b"o" * 32)
ANSWER = StoredResponse(201, ((b"content-type", b"text/plain"), (b"link", b"a"), (b"link", b"b")), b"charged")
HEAD = ANSWER._replace(body=None)

FEWER_KEYS = 40
"""That 16 rivals race for, all at once, in the contract's check of I1. Users' runs race for more."""
FEWER_RIVALS = 8
"""Of stores that stand beside the drivers' own, whose rivals are more."""


def digest_of(key: str) -> bytes:
    """What a key is looked up by."""
    return sha256(key.encode()).digest()


def wish(key: str = "key", **changes: Any) -> Claim:
    """A claim under an owner token of its own."""
    plain = Claim(digest_of(key), "caller", "POST /charges", "…-key", REQUEST, Effects.KEYED, urandom(16), LEASE, KEY)
    return plain._replace(**changes)
