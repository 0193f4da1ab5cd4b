"""JSON bodies in one canonical form, numbers exact.

Applies to application/json and every +json type, in UTF-8. Two bodies have one form if and only if they are the same
JSON text but for:

- white space between tokens, and the order of an object's members;
- how a string spells its characters: `"\\u00e9"` is `"é"`. Nothing is normalised: é as one character and as two differ;
- how a number spells its value: `1`, `1.0` and `1e0` are one number, and so are `0` and `-0`. Values are compared as
  decimals, digit by digit, never as doubles: 0.1 is not 0.1000000000000000055, and 9007199254740993 stays what it is;
- Content-Encoding gzip and deflate, within bounds; `charset=utf-8`, which is what JSON is in anyway (RFC 8259, 8.1).

`null` is not an absent member, `true` is not 1, `1` is not `"1"`, and the order of an array counts.

Taken as sent, and then equal to the very same bytes only: a byte order mark, UTF-16 and every other charset; an object
that names a member twice, because parsers differ in which one they believe; NaN and Infinity; half of a surrogate pair;
more than MAX_DEPTH levels; an exponent spelt with more than MAX_EXPONENT characters; whatever else is not JSON.

The form is itself JSON, in UTF-8, members sorted by code point. A number that is no integer of at most MAX_DIGITS
digits is written `{"":"15e-1"}`: its digits without zeros at either end, then the power of ten, so that 1e999999999
costs what it costs to write. An object that has a member with the empty name is written `{"":{...}}`, so that it cannot
pass for a number. This form is stored in fingerprints: it can be replaced under a new algorithm's number, not changed.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any, Final

from twicesafe.core.content_coding import decoded
from twicesafe.core.media_type import media_type

MAX_DEPTH: Final = 128
"""Levels of arrays and objects. Far more than anybody sends, and far less than Python's recursion limit leaves even
deep inside an application: whether a body is parsed must not depend on who calls."""

MAX_DIGITS: Final = 40
"""Longer integers are written with a power of ten, or `1e4000` would become 4,001 characters."""

MAX_EXPONENT: Final = 20

_MANY_DIGITS: Final = b"0" * (MAX_DIGITS + 1)
_ANY_DIGIT_AS_0: Final = bytes.maketrans(b"123456789", b"000000000")
_NOT_STRUCTURE: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def canonical_json(content_type: bytes, content_encoding: bytes, body: bytes) -> tuple[bytes, bytes] | None:
    """The media type and canonical body, or None where the bytes are to be taken as sent."""
    kind = _kind(content_type)
    if kind is None:
        return None
    plain = decoded(content_encoding, body) if content_encoding else body
    if plain is None or _too_deep(plain):
        return None
    # One search by the machine instead of a call for every integer.
    decoder = _EXACT_DECODER if _MANY_DIGITS in plain.translate(_ANY_DIGIT_AS_0) else _DECODER
    try:
        return kind, _ENCODER.encode(decoder.decode(plain.decode("utf-8"))).encode("utf-8")
    except (ValueError, RecursionError):
        # ValueError: not JSON, not UTF-8, refused by a hook below, or half of a surrogate pair when encoded.
        return None


def _kind(content_type: bytes) -> bytes | None:
    if content_type == b"application/json":
        return content_type
    found = media_type(content_type)
    if found is None or not (found.essence == b"application/json" or found.essence.endswith(b"+json")):
        return None
    if any(value.lower() != b"utf-8" for value in found.values(b"charset")):
        return None
    return found.without(b"charset")


def _too_deep(body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    # Escaped backslashes go first: what is left before a quote then escapes it. Between quotes 1, 3, 5 ... are strings.
    outside = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE).split(b'"')[::2]
    return max(accumulate(map(_STEP.__getitem__, b"".join(outside))), default=0) > MAX_DEPTH


def _number(spelling: str) -> int | bytes:
    """A short integer as such; any other number as the bytes that `_written_number` writes."""
    mantissa, exponent = spelling, 0
    if "e" in spelling or "E" in spelling:
        mantissa, _, power = spelling.lower().partition("e")
        if len(power) > MAX_EXPONENT:
            raise ValueError("an exponent nobody means")
        exponent = int(power)
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    significant = digits.rstrip("0")
    exponent += len(digits) - len(significant) - len(fraction)
    significant = significant.lstrip("-0")
    if not significant:
        return 0
    sign = "-" if spelling[0] == "-" else ""
    if 0 <= exponent <= MAX_DIGITS - len(significant):
        return int(sign + significant + "0" * exponent)
    return f"{sign}{significant}e{exponent}".encode("ascii")


def _written_number(number: bytes) -> dict[str, str]:
    return {"": number.decode("ascii")}


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a member is named twice")
    return {"": found} if "" in found else found


def _no_number(spelling: str) -> None:
    raise ValueError(f"{spelling} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_float=_number, parse_constant=_no_number, object_pairs_hook=_object)
_EXACT_DECODER: Final = json.JSONDecoder(
    parse_float=_number, parse_int=_number, parse_constant=_no_number, object_pairs_hook=_object
)
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":"), default=_written_number
)
