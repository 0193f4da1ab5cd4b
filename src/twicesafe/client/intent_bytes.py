"""An intent as it is kept: which of its headers are not, how the rest is written down, and whether another is the same.

What is kept outlives the release that wrote it: the layout of the file it stands in says which encoding it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from twicesafe.client.intents import Intent
from twicesafe.core.contract import Contract

_SECRET: Final = re.compile(r"auth|cookie|credential|key|passw|secret|session|signature|token")
"""What the name of a header has in it whose value nobody else is to know."""


def split(intent: Intent, withhold: Iterable[str]) -> tuple[Intent, tuple[tuple[str, str], ...]]:
    """The intent without the headers that are not kept, and those. `withhold` names some that do not say so by name."""
    named = {name.lower() for name in withhold}
    withheld = tuple(
        line for line in intent.headers if line[0].lower() in named or _SECRET.search(line[0].lower()) is not None
    )
    return replace(intent, headers=tuple(line for line in intent.headers if line not in withheld)), withheld


def packed(intent: Intent) -> bytes:
    """A line of JSON, and the body as it is."""
    head = {"method": intent.method, "url": intent.url, "headers": intent.headers, "key": intent.key}
    return json.dumps(head, separators=(",", ":")).encode("ascii") + b"\n" + intent.body


def unpacked(content: bytes, contract: Contract) -> Intent:
    """What was packed. ValueError where it is something else."""
    head, newline, body = content.partition(b"\n")
    try:
        found = json.loads(head)
        headers = tuple((str(name), str(value)) for name, value in found["headers"])
        method, url, key = (str(found[member]) for member in ("method", "url", "key"))
    except (KeyError, TypeError) as error:
        raise ValueError("a member is missing") from error
    if not newline:
        raise ValueError("it is cut short")
    return Intent(method, url, headers, body, key, contract, chosen=True)


def difference(kept: Intent, given: Intent) -> str:
    """What is not the same, in words; empty where they ask for the same thing. Keys do not count."""
    differs = [
        what
        for what, one, other in (
            ("method", kept.method, given.method),
            ("address", kept.url, given.url),
            ("headers", _lowered(kept), _lowered(given)),
            ("body", kept.body, given.body),
            ("contract", kept.contract, given.contract),
        )
        if one != other
    ]
    return " and ".join(differs)


def _lowered(intent: Intent) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in intent.headers]
