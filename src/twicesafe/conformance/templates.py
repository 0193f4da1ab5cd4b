"""Templates for what must be unique: `{{unique}}`, `{{key}}` and their like, filled in per intent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from twicesafe.conformance.errors import CannotCheckError

_PLACE: Final = re.compile(r"\{\{\s*([a-z]+)(?::([A-Za-z0-9_]+))?\s*\}\}")

KEY: Final = re.compile(r"\{\{\s*key\s*\}\}")
UNIQUE: Final = re.compile(r"\{\{\s*(?:unique|number)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing that is wanted once. What is unique about it stays the same on each of its attempts."""

    unique: str
    """A UUID: 36 characters that may stand in JSON, a URL or a statement of SQL as they are."""
    number: int
    """Below 2**53, and as unique as that allows."""
    key: str

    def with_key(self, key: str) -> Intent:
        """The same parameters under another key: another intent to a server, and the same words."""
        return Intent(self.unique, self.number, key)


def new_intent(key_template: str = "{{uuid}}") -> Intent:
    """An intent that nobody has had."""
    unique = uuid4()
    intent = Intent(str(unique), unique.int % 2**52, "")
    return intent.with_key(fill(key_template, intent))


def fill(template: str, intent: Intent) -> str:
    """The text with its places filled in.

    `{{unique}}` and `{{number}}` are the intent's, `{{key}}` is its idempotency key, `{{uuid}}` is new in each request
    (in the template of a key: in each key), and `{{env:NAME}}` comes from the environment.
    """
    known: Mapping[str, str] = {"unique": intent.unique, "number": str(intent.number), "key": intent.key}

    def put(found: re.Match[str]) -> str:
        word, name = found.group(1), found.group(2)
        if word == "env" and name:
            if name not in os.environ:
                raise CannotCheckError(f"the environment has no {name}, which the target's description wants")
            return os.environ[name]
        if word == "uuid":
            return str(uuid4())
        if word in known and not name:
            return known[word]
        raise CannotCheckError(f"{found.group()} is no template; there are unique, number, uuid, key and env:NAME")

    return _PLACE.sub(put, template)


def names_unique(templates: Iterable[str]) -> bool:
    """Whether anything in them differs from one intent to the next, the key apart."""
    return any(UNIQUE.search(template) for template in templates)


def from_environment(template: str) -> list[str]:
    """What the `{{env:NAME}}` in a template stand for; nothing for those that are not set."""
    return [os.environ.get(name, "") for word, name in _PLACE.findall(template) if word == "env"]
