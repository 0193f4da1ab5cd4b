"""What each attempt says of itself to whoever receives it. For logs, traces and services in the middle (R40)."""

from __future__ import annotations

from typing import Final

from twicesafe.client.watching import Operation
from twicesafe.core.problems import ATTEMPT, ATTEMPT_LIMIT, OPERATION_ID

ATTEMPT_HEADER: Final = ATTEMPT.decode("ascii")
_LIMIT: Final = ATTEMPT_LIMIT.decode("ascii")
_OPERATION: Final = OPERATION_ID.decode("ascii")

_FIRST: Final = ((ATTEMPT_HEADER, "1"),)


def attempt_headers(operation: Operation, number: int) -> tuple[tuple[str, str], ...]:
    """The header lines of an attempt, names in lower case; each replaces one of its name.

    The first attempt of an operation that nobody watches says only that it is the first: most are the last, too, and
    each further line costs more than all the rest of this package.
    """
    if number == 1 and operation.watch is None and operation.around is None:
        return _FIRST
    around = operation.around
    if around is not None:
        return attempt_headers(around, around.number)
    lines = (ATTEMPT_HEADER, str(number)), (_LIMIT, str(operation.limit)), (_OPERATION, operation.operation_id)
    return lines if operation.trace is None else (*lines, *operation.trace.headers())
