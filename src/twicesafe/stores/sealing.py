"""What a stored answer looks like once it is sealed: compressed where that pays, encrypted where there is a key.

A sealed answer keeps its status, for operators and for retries whose body is gone. Its header lines become one, which
no server lets an application send, and its body a run of bytes that begins with how it was sealed. An answer without
that line is one from before, and is read as it is.

A stored record outlives the release that wrote it: never change this encoding, add another beside it.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from typing import Final

from twicesafe.core.record import StoredResponse
from twicesafe.errors import SealBrokenError, SealKeyMissingError
from twicesafe.stores.contract import Cipher
from twicesafe.stores.packing import pack_headers, unpack_headers

MARK: Final = b"\0sealed"
"""The name of the line that says so."""

STEPS: Final = b"\n~"
"""What a line of sealed steps begins with. In the clear there is no such line."""

PLAIN: Final = 0
COMPRESSED: Final = 1
ENCRYPTED: Final = 2

LEVEL: Final = 1
WINDOW_BITS: Final = 13
MEMORY_LEVEL: Final = 6
"""zlib's quickest with a small memory: 10 us for 1 KB of JSON. With what it takes by default it is 77 us, most of them
to clear that memory, and the result is as long."""

PAYS: Final = 0.9
"""Compressed is kept only where it is smaller by a tenth at least: inflating it costs each replay."""


class Sealing:
    """How one store's answers are sealed and opened. `cipher` None: they are only compressed."""

    def __init__(self, cipher: Cipher | None, compress_from: int | None) -> None:
        self._cipher = cipher
        self._least = compress_from

    def seal(self, response: StoredResponse, digest: bytes, epoch: int) -> StoredResponse:
        """As it is to be stored under this record and this claim of it."""
        status, headers, body = response
        place = _place(digest, epoch)
        if self._cipher is not None:
            lines = self._seal(pack_headers(headers), b"headers" + place)
            sealed = None if body is None else self._seal(body, b"body" + place)
            return StoredResponse(status, ((MARK, lines),), sealed)
        compressed = None if body is None else self._compressed(body)
        if compressed is None:
            return response
        return StoredResponse(status, ((MARK, b""), *headers), bytes((COMPRESSED,)) + compressed)

    def open(self, response: StoredResponse, digest: bytes, epoch: int) -> StoredResponse:
        """What was sealed. SealKeyMissingError, SealBrokenError."""
        status, headers, body = response
        if not headers or headers[0][0] != MARK:
            if self._cipher is not None and headers and headers[0][0].startswith(MARK[:1]):
                raise SealBrokenError("a stored answer was changed: no header line has such a name")
            return response
        place = _place(digest, epoch)
        lines = headers[1:]
        how: tuple[int, ...] = (COMPRESSED,)
        if headers[0][1]:
            how = ENCRYPTED, COMPRESSED | ENCRYPTED
            lines = unpack_headers(self._open(headers[0][1], b"headers" + place, how))
        return StoredResponse(status, lines, None if body is None else self._open(body, b"body" + place, how))

    def seal_request(self, request: bytes, digest: bytes) -> bytes:
        """A request as it is to be stored."""
        if self._cipher is None and self._compressed(request) is None:
            return request
        return MARK + self._seal(request, b"request" + digest)

    def open_request(self, request: bytes, digest: bytes) -> bytes:
        """What was sealed. SealKeyMissingError, SealBrokenError."""
        if not request.startswith(MARK):
            return request
        return self._open(request[len(MARK) :], b"request" + digest, (COMPRESSED, ENCRYPTED, COMPRESSED | ENCRYPTED))

    def seal_steps(self, addition: bytes, digest: bytes, seen: str | None, point: str | None) -> bytes:
        """What is added to a record's steps between two recovery points, as it is to be stored: one line.

        From which point to which is sealed with it, so that none is left out, put elsewhere or added in between.
        """
        if self._cipher is None:
            return addition
        places = f"{seen or ''}\0{point or ''}\0".encode("ascii")
        return STEPS + b64encode(self._seal(places + addition, b"steps" + digest))

    def open_steps(self, data: bytes, digest: bytes) -> bytes:
        """What was sealed. Steps from before the store was sealed stand in front, as they are."""
        if not self.has_sealed_steps(data):
            return data
        clear, *sealed = data.split(STEPS)
        opened, reached = [clear], None if clear else b""
        for line in sealed:
            try:
                text = self._open(
                    b64decode(line, validate=True), b"steps" + digest, (ENCRYPTED, ENCRYPTED | COMPRESSED)
                )
                seen, point, addition = text.split(b"\0", 2)
            except ValueError:
                raise SealBrokenError("what was kept of an operation's steps was changed") from None
            if reached is not None and seen != reached:
                raise SealBrokenError("what was kept of an operation's steps is not all there")
            opened.append(addition)
            reached = point
        return b"".join(opened)

    def has_sealed_steps(self, data: bytes | None) -> bool:
        """Whether some of it is sealed still."""
        return data is not None and STEPS in data

    def _seal(self, plain: bytes, context: bytes) -> bytes:
        compressed = self._compressed(plain)
        how = PLAIN if compressed is None else COMPRESSED
        content = plain if compressed is None else compressed
        if self._cipher is None:
            return bytes((how,)) + content
        how |= ENCRYPTED
        return bytes((how,)) + self._cipher.encrypt(content, bytes((how,)) + context)

    def _open(self, sealed: bytes, context: bytes, expected: tuple[int, ...]) -> bytes:
        """What is sealed in a way that it cannot have been here was changed: as it lies there it is no answer."""
        how = sealed[0] if sealed else -1
        if how not in expected:
            raise SealBrokenError("a stored answer is sealed in a way that this release does not know")
        content = sealed[1:]
        if how & ENCRYPTED:
            if self._cipher is None:
                raise SealKeyMissingError("a stored answer is encrypted, and this store was given no keys")
            content = self._cipher.decrypt(content, bytes((how,)) + context)
        if not how & COMPRESSED:
            return content
        try:
            return zlib.decompress(content)
        except zlib.error:
            raise SealBrokenError("a stored answer cannot be decompressed: it was changed") from None

    def _compressed(self, plain: bytes) -> bytes | None:
        """None where it does not pay."""
        if self._least is None or len(plain) < self._least:
            return None
        compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL)
        compressed = compressor.compress(plain) + compressor.flush()
        return compressed if len(compressed) < len(plain) * PAYS else None


def _place(digest: bytes, epoch: int) -> bytes:
    """Of one record, one claim: an answer of another caller, or of the same key's last life, is not this one's."""
    return epoch.to_bytes(8, "big") + digest
