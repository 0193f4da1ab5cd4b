"""Header lines as one run of bytes, the same in every store.

A stored record outlives the release that wrote it: never change this encoding, add another beside it.
"""

from __future__ import annotations

from itertools import chain
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final

from twicesafe.core.record import HeaderLines
from twicesafe.errors import StoreError

_LENGTHS: Final = Struct(">HI")
"""Length of the name, length of the value; both follow."""


def pack_headers(lines: HeaderLines) -> bytes:
    """Line for line, count, order and bytes kept (R17). No lines are no bytes."""
    pack = _LENGTHS.pack
    return b"".join([part for name, line in lines for part in (pack(len(name), len(line)), name, line)])


def packed_size(lines: HeaderLines) -> int:
    """Of what `pack_headers` makes of them."""
    return _LENGTHS.size * len(lines) + sum(map(len, chain.from_iterable(lines)))


def unpack_headers(packed: bytes) -> HeaderLines:
    """The lines that `pack_headers` was given. StoreError for what it never made."""
    lines = []
    at, end = 0, len(packed)
    try:
        while at < end:
            name_length, line_length = _LENGTHS.unpack_from(packed, at)
            name_at = at + _LENGTHS.size
            line_at = name_at + name_length
            at = line_at + line_length
            lines.append((packed[name_at:line_at], packed[line_at:at]))
    except StructError:
        at = -1
    if at != end:
        raise StoreError("the header lines of a stored answer are damaged, so nothing runs under its key")
    return tuple(lines)
