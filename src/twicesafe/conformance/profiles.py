"""Whose rules a target is held to. What would do harm fails under all of them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from twicesafe.conformance.errors import CannotCheckError


@dataclass(frozen=True, slots=True)
class Profile:
    """The published rules that can be seen from outside. An empty set: nothing is said of it."""

    name: str
    title: str
    missing: frozenset[int] = frozenset()
    """Statuses of a request without a key, where one is required."""
    malformed: frozenset[int] = frozenset()
    mismatch: frozenset[int] = frozenset()
    """Of another request under a used key."""
    in_progress: frozenset[int] = frozenset()
    marker: str = ""
    """The header line that says that an answer is a replay; empty where none is promised."""
    one_identity: bool = False
    """Whether a bare and a quoted key have to be the same."""


@cache
def profiles() -> Mapping[str, Profile]:
    """All there are, by name."""
    text = files("twicesafe.conformance").joinpath("profiles.toml").read_text(encoding="utf-8")
    return {name: _profile(name, facts) for name, facts in tomllib.loads(text).items()}


def _profile(name: str, facts: Mapping[str, Any]) -> Profile:
    made: dict[str, Any] = {fact: frozenset(said) if isinstance(said, list) else said for fact, said in facts.items()}
    return Profile(name, **made)


def profile(name: str) -> Profile:
    """The profile of this name. CannotCheckError where there is none."""
    found = profiles().get(name)
    if found is None:
        raise CannotCheckError(f"there is no profile {name}; there are {', '.join(profiles())}")
    return found
