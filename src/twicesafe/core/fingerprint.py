"""Does this request ask for the same thing as the first one?

The digest covers method, raw path, query string, media type, content coding, chosen headers and the body (R8); by one
algorithm, to be chosen with care, the address alone. Its first byte names the algorithm, so that the algorithm can
change under live keys: a stored fingerprint is always compared by its own. Whatever a stricter reading cannot parse is
hashed as it was sent, under another mark than a parsed form, so that the two never meet: a false mismatch refuses, a
false match would replay the wrong answer.

Written one way is one request, and nothing else: `/orders` is not `/orders/`, `%7E` is not `~`, `?a=1&b=2` is not
`?b=2&a=1`. A client that tries again sends what it sent before.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from twicesafe.core.canonical_json import canonical_json
from twicesafe.core.multipart import canonical_multipart
from twicesafe.errors import ConfigurationError, FingerprintAlgorithmError

UNQUOTED: Final = "/:@!$&'()*+,;=~"
"""What clients leave as it is in a path (RFC 3986, 3.3): quoted anew it is what another server, which says it, got."""


class FingerprintAlgorithm(IntEnum):
    """Numbers are stored: never change one, never change what one means, add another."""

    RAW_1 = 1
    """Body bytes as sent."""
    JSON_1 = 2
    """JSON bodies canonically, numbers exact; everything else as RAW_1."""
    MULTIPART_1 = 3
    """multipart/form-data part by part, without the boundary; everything else as RAW_1."""
    ADDRESS_1 = 4
    """Method, path, query string and chosen headers; the body counts for nothing. A caller who reuses a key for another
    body is answered as if it had been the first one: only for callers of an API that has always done so."""


RAW: Final = FingerprintAlgorithm.RAW_1
JSON: Final = FingerprintAlgorithm.JSON_1
MULTIPART: Final = FingerprintAlgorithm.MULTIPART_1
ADDRESS: Final = FingerprintAlgorithm.ADDRESS_1


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
        names: object = self.headers
        if not isinstance(names, tuple | list | set | frozenset) or not all(isinstance(name, bytes) for name in names):
            # A name as text would equal no header's name, and the header would silently not count.
            raise ConfigurationError(f"fingerprint headers must be a tuple of bytes, not {names!r}")
        return FingerprintRule(algorithm, tuple(sorted({name.lower() for name in self.headers})))


class RequestFacts(NamedTuple):
    """What a shell saw on the wire. `path` is the raw path, percent signs and all; header names are lower-case."""

    method: str
    path: bytes
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    lines: Mapping[bytes, bytes] | None = None
    """The header lines by name, where the shell has them so; only where no name comes twice."""


class Fingerprint:
    """A request's digest, and the means to make it again by the algorithm an older record was made with."""

    __slots__ = ("_facts", "_names", "value")

    def __init__(self, facts: RequestFacts, rule: FingerprintRule) -> None:
        method, path, query, _, body, lines = self._facts = facts
        algorithm, names = rule
        self._names = names
        if lines is not None and algorithm is RAW and not names:
            # As compute does; not by it, because nearly every request comes this way.
            content_type, content_encoding = lines.get(b"content-type", b""), lines.get(b"content-encoding", b"")
            digest = sha256(_front(False, method, path, query, content_type, content_encoding, b""))
            digest.update(body)
            self.value = b"\1" + digest.digest()
        else:
            self.value = compute(facts, algorithm, names)

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The request's header lines, as they came."""
        return self._facts.headers

    def matches(self, stored: bytes) -> bool:
        """Whether the record's request was this one. FingerprintAlgorithmError where only a newer release can tell."""
        mine = self.value
        if stored[:1] != mine[:1]:
            try:
                algorithm = FingerprintAlgorithm(int.from_bytes(stored[:1], "big"))
            except ValueError:
                raise FingerprintAlgorithmError(
                    f"the record was fingerprinted by algorithm {stored[:1]!r}, which this release does not know: "
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
FRONTS_KEPT: Final = 128
"""Most requests differ from an earlier one in their bodies only. Servers bound a head's size, some 64 KB each."""
_LENGTHS: Final = Struct(">?6I")
"""Whether the body was parsed, then the length of each part but the body, which is the last."""


def compute(facts: RequestFacts, algorithm: FingerprintAlgorithm, names: Iterable[bytes] = ()) -> bytes:
    """33 bytes: the algorithm's number, then SHA-256 over the lengths of the parts and the parts."""
    method, path, query, headers, body, lines = facts
    if lines is not None:
        content_type, content_encoding = lines.get(b"content-type", b""), lines.get(b"content-encoding", b"")
    else:
        content_type, content_encoding = _listed(headers, b"content-type"), _listed(headers, b"content-encoding")
    if algorithm is ADDRESS:
        content_type = content_encoding = body = b""
    parsed = _parsed_body(algorithm, content_type, content_encoding, body)
    if parsed is not None:
        content_type, body = parsed
        content_encoding = b""
    chosen = b"".join(
        b"%d:%b%d:%b" % (len(name), name, len(line), line)
        for wanted in names
        for name, line in headers
        if name == wanted
    )
    digest = sha256(_front(parsed is not None, method, path, query, content_type, content_encoding, chosen))
    digest.update(body)
    return _PREFIX[algorithm] + digest.digest()


def _listed(headers: Sequence[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    """The field's value. Two lines of one name are one list (RFC 9110, 5.3), which no parser takes for one value."""
    value = b""
    for name, line in headers:
        if name == wanted:
            value = value + b"," + line if value else line
    return value


@lru_cache(maxsize=FRONTS_KEPT)
def _front(
    parsed: bool,  # noqa: FBT001 - it stands at its place in the front
    method: str,
    path: bytes,
    query: bytes,
    content_type: bytes,
    content_encoding: bytes,
    chosen: bytes,
) -> bytes:
    """All that is hashed before the body."""
    verb = method.encode("utf-8", "surrogatepass")
    lengths = _LENGTHS.pack(
        parsed, len(verb), len(path), len(query), len(content_type), len(content_encoding), len(chosen)
    )
    return b"".join((lengths, verb, path, query, content_type, content_encoding, chosen))


def _parsed_body(
    algorithm: FingerprintAlgorithm, content_type: bytes, content_encoding: bytes, body: bytes
) -> tuple[bytes, bytes] | None:
    """The media type and the canonical body, or None where the bytes are to be taken as sent."""
    if algorithm is JSON:
        return canonical_json(content_type, content_encoding, body)
    if algorithm is MULTIPART:
        return canonical_multipart(content_type, content_encoding, body)
    return None
