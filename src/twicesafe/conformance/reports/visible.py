"""Text that shows every character it has: nothing in it moves a cursor, turns lines around, or ends a document."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_PLAIN: Final = re.compile(r"[^\t\n\x20-\x7e]")
_HIDDEN: Final = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def visible(text: str) -> str:
    """The text with control characters, marks that change its direction, surrogates and the like as escapes.

    What is left may stand in XML and on a terminal. Line feeds and tabs stay.
    """
    return _PLAIN.sub(_shown, text.replace("\r\n", "\n"))


def on_one_line(text: str) -> str:
    """The same without line feeds."""
    return " ".join(visible(text).split())


def _shown(found: re.Match[str]) -> str:
    character = found[0]
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
