"""The two endpoints that every click of the page goes to."""

from __future__ import annotations

from enum import StrEnum


class Lane(StrEnum):
    """A lane is an endpoint with a server process of its own; both write to one ledger in one file."""

    NAIVE = "naive"
    """Charges whenever it is asked."""
    SAFE = "safe"
    """The same handler behind twicesafe."""

    @property
    def path(self) -> str:
        """The endpoint's address."""
        return f"/{self}/charges"

    @property
    def document(self) -> str:
        """Where its OpenAPI document is."""
        return f"/{self}/openapi.json"
