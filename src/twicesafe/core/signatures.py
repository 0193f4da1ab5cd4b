"""Signatures of webhooks, as Standard Webhooks has them: over id, timestamp and body, by secrets that both sides know.

Several secrets can be in use at once, so that they can be changed: a sender signs with each of its own, and a receiver
takes what any of its own has signed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from twicesafe.errors import ConfigurationError, InvalidMessageError, SignatureError

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"

DEFAULT_TOLERANCE: Final = timedelta(minutes=5)
"""How far the sender's clock may be from the receiver's, the way between them included."""

_PREFIX: Final = "whsec_"
_SHORTEST: Final = 16
"""Bytes of a secret. Standard Webhooks asks for 24 to 64; some senders give less."""
_SIGNATURES_READ: Final = 20
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_READS_AS_TIME: Final = re.compile(r"\.[0-9]+(?:\.|\Z)")
"""Id, timestamp and body are signed with dots between them. Behind a dot in an id a number would be read as the time,
by whoever cuts the same text elsewhere: `m.5` at 9 with the body `b` is signed as `m` at 5 with the body `9.b` is."""


class Secrets(NamedTuple):
    """Signing keys. They print as their number only."""

    keys: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"<{len(self.keys)} secrets>"


def read_secrets(texts: str | Iterable[str]) -> Secrets:
    """One secret or several, each `whsec_` and base64 of its bytes. ConfigurationError where one is not."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    if not listed:
        raise ConfigurationError("a webhook needs a secret, or several while they are changed")
    return Secrets(tuple(_key(text) for text in listed))


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < _SHORTEST:
        raise ConfigurationError(f"a webhook secret is {_PREFIX} and the base64 of {_SHORTEST} bytes or more")
    return key


def signable(message_id: str) -> str:
    """The id as it can be signed: percent-encoded where it could be taken for another id and a time.

    `message_id` has no percent sign but of such an encoding; whoever reads it undoes both.
    """
    return message_id.replace(".", "%2E") if _READS_AS_TIME.search(message_id) else message_id


def sign(secrets: Secrets, message_id: str, timestamp: int, body: bytes) -> Sequence[tuple[str, str]]:
    """The three header lines that a receiver asks for. `timestamp` in seconds since the Unix epoch.

    InvalidMessageError for an id that `signable` would change.
    """
    if _READS_AS_TIME.search(message_id):
        raise InvalidMessageError("the id of a webhook has no number between dots: it could be taken for the time")
    signatures = " ".join(_signature(key, message_id, str(timestamp), body) for key in secrets.keys)
    return [(ID, message_id), (TIMESTAMP, str(timestamp)), (SIGNATURE, signatures)]


def verify(
    secrets: Secrets, headers: Mapping[str, str], body: bytes, now: float, tolerance: timedelta = DEFAULT_TOLERANCE
) -> str:
    """The id that was signed with the body, by somebody who has one of the secrets, at about `now`.

    `headers` by lower-case name; `body` exactly as it came; `now` in seconds since the Unix epoch. SignatureError
    otherwise. Nothing but id, time and body is signed: no other header may decide anything that matters.
    """
    message_id, timestamp, signatures = (headers.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    if not message_id or not timestamp or not signatures:
        raise SignatureError(f"the webhook is not signed: it needs {ID}, {TIMESTAMP} and {SIGNATURE}")
    if _TIMESTAMP.fullmatch(timestamp) is None:
        raise SignatureError(f"{TIMESTAMP} is not in seconds since 1970")
    if _READS_AS_TIME.search(message_id):
        raise SignatureError(f"{ID} has a number between dots, which could be another webhook's time")
    if abs(now - int(timestamp)) > tolerance.total_seconds():
        raise SignatureError("the webhook was signed too long ago, or by a clock that is off")
    given = [_bytes(text) for text in signatures.split(" ")[:_SIGNATURES_READ]]
    fits = False
    for key in secrets.keys:
        made = _signature(key, message_id, timestamp, body).encode()
        for signature in given:
            fits |= hmac.compare_digest(made, signature)
    if not fits:
        raise SignatureError("the webhook's signature is of none of the secrets, or its body was changed")
    return message_id


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    digest = hmac.new(key, _bytes(f"{message_id}.{timestamp}.") + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def _bytes(text: str) -> bytes:
    """Of a header that anybody may have sent: there are servers that write its bytes as lone surrogates."""
    return text.encode("utf-8", "surrogatepass")
