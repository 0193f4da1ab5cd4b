"""Texts that are known by their value, in whatever encoding they come back: as they are, percent-encoded, in base64."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

Pattern = re.Pattern[str]

SHORT: Final = 4
"""Below so many characters a text is looked for as a word of its own only, and in no encoding."""

LONG: Final = 256
"""Characters of a text that are compared."""

_REST: Final = r"""[^\s"'<>&;,]*+"""
_SLASHES: Final = r"(?:\\|%(?:25){0,3}5[Cc]){1,4}"
"""Of an escape in JSON: several, where it is JSON in JSON."""

_IN_XML: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&(?:quot|#34|#x22);", "'": "&(?:apos|#39|#x27);"}
_ALPHABET: Final = r"[A-Za-z0-9+/_-]"


def pattern_of(texts: Iterable[str], *, encoded: bool) -> Pattern | None:
    """What finds any of these texts, the longest first; None where there are none.

    With `encoded` in any way in which they may be written; without, as they are and as a URL has them: there may be
    hundreds, and each way costs.
    """
    ordered = sorted({text for text in texts if text}, key=lambda text: (-len(text), text))
    ways = dict.fromkeys(way for text in ordered for way in (_ways(text) if encoded else _plainly(text)))
    return re.compile("|".join(ways)) if ways else None


def _plainly(text: str) -> Iterator[str]:
    for written in (text, quote(text, safe="", errors="replace")):
        # A long one is known by how it begins, and ends where a word does: to search for all of it may take for ever.
        yield re.escape(written) if len(written) <= LONG else re.escape(written[:LONG]) + _REST


def _ways(text: str) -> Iterator[str]:
    if len(text) < SHORT:
        yield rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])"
        return
    yield _escaped(text)
    if not text.isascii():
        # Bytes of a header that were read as ISO 8859-1.
        yield _escaped(text.encode("utf-8", "surrogatepass").decode("iso-8859-1"))
    yield from _in_base64(text.encode("utf-8", "surrogatepass"))


def _escaped(text: str) -> str:
    """The text with any of its characters percent-encoded, or escaped as JSON and XML do."""
    return "".join(map(_character, text))


def _character(character: str) -> str:
    percents = "".join(f"%(?:25){{0,3}}{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
    units = character.encode("utf-16-be", "surrogatepass")
    escapes = "".join(f"{_SLASHES}u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    ways = [re.escape(character), f"(?i:{percents})", f"(?i:{escapes})"]
    if character in '"\\/':
        ways.append(f"{_SLASHES}(?:{re.escape(character)}|(?i:{percents}))")
    if character in _IN_XML:
        ways.append(_IN_XML[character])
    if character == " ":
        ways.append(r"\+")
    return f"(?:{'|'.join(ways)})"


def _in_base64(data: bytes) -> Iterator[str]:
    """Wherever in encoded data the bytes may stand: three ways, of each the characters that they alone decide."""
    for offset, mixed in ((0, 0), (1, 2), (2, 3)):
        certain = base64.b64encode(b"\0" * offset + data).decode("ascii")[mixed : (len(data) + offset) * 8 // 6]
        either = {"+": "(?:[+-]|%2[Bb])", "/": "(?:[/_]|%2[Ff])"}
        yield f"{_ALPHABET}?{''.join(either.get(one, one) for one in certain)}{_ALPHABET}?(?:=|%3[Dd]){{0,2}}"
