"""multipart/form-data bodies without their boundary, which clients draw anew for every attempt.

Two bodies have one form if and only if they hold the same parts. A part is its header lines (names in lower case,
values as sent; lines of different names in any order) and its bytes, every one of them. Fields may come in another
order, but parts that share a name keep theirs: a list of files is a list. The form sorts parts by name, stably, and
puts its length before each piece, so that no two lists of parts share it. Content-Encoding gzip and deflate are undone
within bounds.

The grammar is RFC 7578's, strictly: no preamble, nothing after the last boundary but a line's end, no folded headers,
and on each part one Content-Disposition of `form-data` with a name and at most a file name. Whatever else comes, and
more than MAX_PARTS, is taken as sent, boundary and all.
"""

from __future__ import annotations

import re
from typing import Final

from twicesafe.core.content_coding import decoded
from twicesafe.core.media_type import MediaType, media_type

MAX_PARTS: Final = 1000
"""What multipart parsers of web frameworks take at most."""

_BOUNDARY: Final = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_FIELD_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_STRAY: Final = re.compile(rb"[\0\r\n]")
_DISPOSITION: Final = re.compile(
    rb'form-data;[ \t]*name=(?:"([^"\\]*)"|([^\s";\\=]+))'
    rb'(?:[ \t]*;[ \t]*filename\*?=(?:"(?:[^"\\]|\\.)*"|[^\s";\\]+))*',
    re.IGNORECASE,
)


def canonical_multipart(content_type: bytes, content_encoding: bytes, body: bytes) -> tuple[bytes, bytes] | None:
    """The media type and canonical body, or None where the bytes are to be taken as sent."""
    kind = media_type(content_type)
    boundary = _boundary(kind)
    if kind is None or boundary is None:
        return None
    plain = decoded(content_encoding, body)
    if plain is None:
        return None
    parts = _parts(plain, boundary)
    if parts is None:
        return None
    # By name only: parts of one name stay in the order they were sent in.
    parts.sort(key=lambda part: part[0])
    pieces: list[bytes] = []
    for _, headers, content in parts:
        pieces += (b"%d:%b%d:" % (len(headers), headers, len(content)), content)
    return kind.without(b"boundary"), b"".join(pieces)


def field_values(content_type: bytes, body: bytes, name: str) -> list[str] | None:
    """The values of the form's fields of this name, each byte a character. None for what the grammar does not take."""
    boundary = _boundary(media_type(content_type))
    parts = None if boundary is None else _parts(body, boundary)
    wanted = name.encode("utf-8")
    return None if parts is None else [content.decode("latin-1") for found, _, content in parts if found == wanted]


def _boundary(kind: MediaType | None) -> bytes | None:
    if kind is None or kind.essence != b"multipart/form-data":
        return None
    boundaries = kind.values(b"boundary")
    return boundaries[0] if len(boundaries) == 1 and _BOUNDARY.fullmatch(boundaries[0]) is not None else None


def _parts(body: bytes, boundary: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
    """Name, header lines and content of each part."""
    # The first boundary begins the body, every other one a line: with a line's end before it, it is like the others.
    delimiter = b"\r\n--" + boundary
    whole = b"\r\n" + body
    if not 1 <= whole.count(delimiter) <= MAX_PARTS + 1:
        return None
    before, *between, after = whole.split(delimiter)
    if before or after not in (b"--", b"--\r\n"):
        return None
    parts = []
    for part in between:
        head, empty_line, content = part.partition(b"\r\n\r\n")
        if not empty_line or not head.startswith(b"\r\n"):
            return None
        found = _headers(head[2:])
        if found is None:
            return None
        parts.append((*found, content))
    return parts


def _headers(head: bytes) -> tuple[bytes, bytes] | None:
    """The part's name, and its header lines in one spelling."""
    lines = []
    name = None
    for line in head.split(b"\r\n"):
        field, colon, value = line.partition(b":")
        if not colon or _FIELD_NAME.fullmatch(field) is None or _STRAY.search(value) is not None:
            return None
        field, value = field.lower(), value.strip(b" \t")
        if field == b"content-disposition":
            disposition = _DISPOSITION.fullmatch(value)
            if disposition is None or name is not None:
                return None
            quoted, bare = disposition.groups()
            name = bare if quoted is None else quoted
        lines.append((field, value))
    if name is None:
        return None
    lines.sort(key=lambda line: line[0])
    return name, b"\r\n".join([b"%b:%b" % line for line in lines])
