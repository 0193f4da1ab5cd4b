"""Does this request ask for the same thing as the first one?

The digest covers method, raw path, query string, media type, chosen headers and the body (R8). Its first byte names the
algorithm, so that the algorithm can change under live keys: a stored fingerprint is always compared by its own.
Whatever a stricter reading cannot parse is hashed as raw bytes, under a mark that no parsed form can produce: a false
mismatch refuses, a false match would replay the wrong answer.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import sha256
from typing import Final, NamedTuple

from twicesafe.core.canonical_json import canonical_json
from twicesafe.core.multipart import canonical_multipart
from twicesafe.errors import ConfigurationError, FingerprintAlgorithmError


class FingerprintAlgorithm(IntEnum):
    """Numbers are stored: never change one, never change what one means, add another."""

    RAW_1 = 1
    """Body bytes as sent."""
    JSON_1 = 2
    """JSON bodies canonically, numbers exact; everything else as RAW_1."""
    MULTIPART_1 = 3
    """multipart/form-data part by part, without the boundary; everything else as RAW_1."""


RAW: Final = FingerprintAlgorithm.RAW_1
JSON: Final = FingerprintAlgorithm.JSON_1
MULTIPART: Final = FingerprintAlgorithm.MULTIPART_1


class FingerprintRule(NamedTuple):
    """Which algorithm, and which request headers change what is asked for (an API version, say)."""

    algorithm: FingerprintAlgorithm = RAW
    headers: tuple[bytes, ...] = ()

    def checked(self) -> FingerprintRule:
        """This rule with lower-case header names, or ConfigurationError."""
        try:
            algorithm = FingerprintAlgorithm(self.algorithm)
        except ValueError:
            raise ConfigurationError(f"fingerprint algorithm {self.algorithm!r} is not known") from None
        return FingerprintRule(algorithm, tuple(sorted({name.lower() for name in self.headers})))


class RequestFacts(NamedTuple):
    """What a shell saw on the wire. `path` is the raw path, percent signs and all; header names are lower-case."""

    method: str
    path: bytes
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class Fingerprint:
    """A request's digest, and the means to make it again by the algorithm an older record was made with."""

    __slots__ = ("_facts", "_names", "value")

    def __init__(self, facts: RequestFacts, rule: FingerprintRule) -> None:
        self._facts = facts
        self._names = rule.headers
        self.value: Final = compute(facts, rule.algorithm, rule.headers)

    def matches(self, stored: bytes) -> bool:
        """Whether the record's request was this one. FingerprintAlgorithmError where only a newer release can tell."""
        mine = self.value
        if stored[0] != mine[0]:
            try:
                algorithm = FingerprintAlgorithm(stored[0])
            except ValueError:
                raise FingerprintAlgorithmError(
                    f"the record was fingerprinted by algorithm {stored[0]}, which this release does not know: "
                    "finish the upgrade of all servers"
                ) from None
            mine = compute(self._facts, algorithm, self._names)
        return hmac.compare_digest(mine, stored)


class GivenFingerprint(NamedTuple):
    """A fingerprint that was made elsewhere (function arguments, a test). Compared as it stands."""

    value: bytes

    def matches(self, stored: bytes) -> bool:
        """Whether the stored fingerprint is this one."""
        return hmac.compare_digest(self.value, stored)


_PREFIX: Final = {algorithm: bytes([algorithm]) for algorithm in FingerprintAlgorithm}


def compute(facts: RequestFacts, algorithm: FingerprintAlgorithm, names: Iterable[bytes] = ()) -> bytes:
    """33 bytes: the algorithm's number, then SHA-256 over the length-prefixed parts."""
    method, path, query, headers, body = facts
    content_type = content_encoding = b""
    for name, line in headers:
        if name == b"content-type":
            content_type = line
        elif name == b"content-encoding":
            content_encoding = line
    media_type = content_type
    if algorithm is not RAW:
        parsed = _parsed_body(algorithm, content_type, content_encoding, body)
        if parsed is not None:
            media_type, body = parsed
            content_encoding = b""
    chosen = b""
    if names:
        chosen = b"".join(
            b"%d:%b%d:%b" % (len(name), name, len(line), line)
            for wanted in names
            for name, line in headers
            if name == wanted
        )
    head = b"%b %d:%b%d:%b%d:%b%d:%b%d:%b" % (
        method.encode("ascii", "backslashreplace"),
        len(path), path,
        len(query), query,
        len(media_type), media_type,
        len(content_encoding), content_encoding,
        len(chosen), chosen,
    )  # fmt: skip
    digest = sha256(head)
    digest.update(body)
    return _PREFIX[algorithm] + digest.digest()


def _parsed_body(
    algorithm: FingerprintAlgorithm, content_type: bytes, content_encoding: bytes, body: bytes
) -> tuple[bytes, bytes] | None:
    """The media type and the canonical body, or None where the bytes are to be taken as sent."""
    if algorithm is JSON:
        return canonical_json(content_type, content_encoding, body)
    return canonical_multipart(content_type, content_encoding, body)
