"""multipart/form-data without its boundary (to be written)."""

from __future__ import annotations


def canonical_multipart(content_type: bytes, content_encoding: bytes, body: bytes) -> tuple[bytes, bytes] | None:
    """The media type and canonical body, or None where the bytes are to be taken as sent."""
    return None
