"""What the caller may assume about sending an operation again (R36)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class Contract(StrEnum):
    """How an operation behaves when it arrives twice."""

    SAFE = "safe"
    """It changes nothing: ask as often as you like."""
    IDEMPOTENT = "idempotent"
    """Doing it twice leaves what doing it once left."""
    CONDITIONAL = "conditional"
    """It carries a precondition that its own effect makes false: a second time is refused, not done."""
    KEYED = "keyed"
    """It carries an idempotency key, and its server honours it."""
    NEVER = "never"
    """A second time may do it twice. It is sent again only where provably nothing was sent."""


_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PROPFIND", "REPORT", "SEARCH"})
_IDEMPOTENT: Final = frozenset({"PUT", "DELETE"})
_TAKES_PRECONDITIONS: Final = frozenset({"PUT", "PATCH", "DELETE"})


def contract_of(method: str, headers: Iterable[tuple[bytes, bytes]], *, keyed: bool) -> Contract:
    """The contract of a request about which nothing else is known. `keyed`: the caller gave it a key.

    POST and PATCH are never assumed to be repeatable; If-Match with an entity tag and `If-None-Match: *` are
    preconditions that the effect itself makes false. Dates are not: two changes fit into one second.
    """
    if method in _SAFE:
        return Contract.SAFE
    if keyed:
        return Contract.KEYED
    if method in _TAKES_PRECONDITIONS and any(_excludes_a_repeat(name.lower(), line) for name, line in headers):
        return Contract.CONDITIONAL
    return Contract.IDEMPOTENT if method in _IDEMPOTENT else Contract.NEVER


def _excludes_a_repeat(name: bytes, line: bytes) -> bool:
    any_version = line.strip() == b"*"
    return (name == b"if-match" and not any_version) or (name == b"if-none-match" and any_version)
