"""The numbers by which PostgreSQL's advisory locks know a key and a request."""

from __future__ import annotations


def lock_keys(digest: bytes, fingerprint: bytes = b"") -> dict[str, int]:
    """The key's lock is one 8-byte number, the request's two 4-byte ones, which PostgreSQL keeps in another space.

    They are cut from SHA-256 digests. Where two keys share one, one of them is told "in progress" now and then.
    """
    of_key, of_request = digest[:4], fingerprint[-4:]
    return {
        "digest_int8": int.from_bytes(digest[:8], "big", signed=True),
        "digest_int4": int.from_bytes(of_key, "big", signed=True),
        "digest_uint4": int.from_bytes(of_key, "big"),
        "fingerprint_int4": int.from_bytes(of_request, "big", signed=True),
        "fingerprint_uint4": int.from_bytes(of_request, "big"),
    }
