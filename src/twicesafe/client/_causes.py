"""What an exception was made from."""

from __future__ import annotations

from ssl import SSLCertVerificationError
from typing import Any, Final

_DEPTH: Final = 12


def causes_of(error: BaseException, around: BaseException | None) -> list[BaseException]:
    """The exception and those behind it. urllib3 and who uses it hand on what they caught as an argument, too.

    `around` is what was being handled before: Python puts it behind everything that is raised within.
    """
    found: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting and len(found) < _DEPTH:
        cause = waiting.pop(0)
        if not isinstance(cause, BaseException) or cause is around or any(cause is other for other in found):
            continue
        found.append(cause)
        waiting += [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
    return found


def is_distrust(error: BaseException, around: BaseException | None) -> bool:
    """Whether the server's certificate was refused."""
    return any(isinstance(cause, SSLCertVerificationError) for cause in causes_of(error, around))
