"""What can go wrong with the storm itself, as against with what it storms."""

from __future__ import annotations

from twicesafe.errors import TwicesafeError


class StormError(TwicesafeError):
    """The storm could not be run: a server or the database did not start. It says nothing about duplicates."""
