"""Undoes the Content-Encoding of a request body, within bounds, so that a body sent gzipped and plain is one body."""

from __future__ import annotations

import zlib
from typing import Final

MAX_DECODED: Final = 1024 * 1024
"""Bytes. As much as a plain body may have by default: a small bomb makes no more work than an honest body would."""

_WINDOW_BITS: Final = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""31: a gzip file with its check sum. 15: zlib's format, which is what "deflate" means (RFC 9110, 8.4.1.2)."""


def decoded(content_encoding: bytes, body: bytes) -> bytes | None:
    """The plain body. None for other and stacked codings, damaged or trailing data, and more than MAX_DECODED bytes."""
    coding = content_encoding.strip(b" \t").lower()
    if coding in (b"", b"identity"):
        return body
    bits = _WINDOW_BITS.get(coding)
    if bits is None:
        return None
    stream = zlib.decompressobj(bits)
    try:
        plain = stream.decompress(body, MAX_DECODED + 1)
    except zlib.error:
        return None
    if not stream.eof or stream.unused_data or len(plain) > MAX_DECODED:
        return None
    return plain
