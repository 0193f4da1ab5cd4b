"""Why a check could not be made."""

from __future__ import annotations


class CannotCheckError(Exception):
    """The target is described wrongly, out of reach, or not to be touched. The message is one line for a person."""
