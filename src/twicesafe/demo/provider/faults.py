"""What a provider may do to a charge, once for each time that it was asked to."""

from __future__ import annotations

from enum import StrEnum
from typing import Never


class ProviderFault(StrEnum):
    """A fault of the provider's. `before`: nothing is charged; `after`: it is, and the caller does not hear of it."""

    TOO_MANY = "too_many"
    """Answered 429, before."""
    ERROR_BEFORE = "error_before"
    """Answered 500, before."""
    RESET_BEFORE = "reset_before"
    """The connection is reset, before."""
    KILL_BEFORE = "kill_before"
    """The provider's process kills itself, before."""
    SLOW = "slow"
    """It takes its time and charges then, whether or not its caller is still there."""
    ERROR_AFTER = "error_after"
    """Answered 500, after."""
    DROP_AFTER = "drop_after"
    """The connection ends without an answer, after."""
    KILL_AFTER = "kill_after"
    """The provider's process kills itself, after."""

    @classmethod
    def _missing_(cls, value: object) -> Never:
        raise ValueError(f"a fault is one of {', '.join(cls)}, not {value!r}")
