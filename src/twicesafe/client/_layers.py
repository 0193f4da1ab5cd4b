"""One retry layer (R40): the operation that is under way in this context, and what another one within it then does."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from twicesafe.client._left_open import LEFT_OPEN
from twicesafe.client.callers import caller_retries
from twicesafe.client.watching import Operation
from twicesafe.core.outcome import Outcome, Unknown
from twicesafe.core.retry_policy import RetryPolicy

UNDERWAY: Final[ContextVar[Operation | None]] = ContextVar("twicesafe.underway", default=None)
"""Of a thread, a task and the tasks begun in it. Those that outlive the operation see one that is over."""


def one_layer(operation: Operation, policy: RetryPolicy) -> RetryPolicy:
    """The policy of an operation that others may retry: where they do, it has one attempt."""
    around = UNDERWAY.get()
    if around is not None and not around.over and _is_same(operation, around):
        operation.around = around
        policy = policy.but(attempts=1, in_progress=0)
    elif policy.leave_to_caller and caller_retries():
        policy = policy.but(attempts=1)
    operation.limit = policy.attempts
    return policy


def _is_same(operation: Operation, around: Operation) -> bool:
    """Whether an operation within another is the other: by its key, or because it asks for the same thing.

    What is asked for within an attempt, at the same place, is that attempt, whatever key it was given.
    """
    if operation.key is not None and operation.key == around.key:
        return True
    return _asks_for(operation) == _asks_for(around)


def _asks_for(operation: Operation) -> tuple[str, str, str]:
    return operation.method, operation.address, operation.path


def enter(operation: Operation) -> Operation | None:
    """From here to `leave()` the operation is under way. Returns what was so before."""
    before = UNDERWAY.get()
    if operation.around is not None:
        _tell_nested(operation, operation.around)
    elif LEFT_OPEN.known:
        LEFT_OPEN.compare(operation)
    UNDERWAY.set(operation)
    return before


def _tell_nested(operation: Operation, around: Operation) -> None:
    anew = operation.key is not None and around.key is not None and operation.key != around.key
    operation.tell(operation.event("key.made_anew" if anew else "retry.nested", loud=anew))


def leave(before: Operation | None, operation: Operation, outcome: Outcome[Any] | None) -> None:
    """The operation is over: with an outcome or, where that is None, by an exception that is on its way."""
    # Set, not reset: a coroutine that nobody finishes is closed wherever the collector runs.
    UNDERWAY.set(before)
    operation.over = True
    if (LEFT_OPEN.known or outcome is None or type(outcome) is Unknown) and operation.around is None:
        LEFT_OPEN.note(operation, outcome)
