"""What happened, for the people who run it. Key hints only: never a key, a body or a stored answer (R22, R44)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from twicesafe.core.outcome import Attempt

_log: Final = logging.getLogger("twicesafe")


class Event(NamedTuple):
    """One thing worth counting. `loud` ones need a human: work may be done without a record of it."""

    name: str
    operation: str
    key_hint: str
    loud: bool
    error: BaseException | None = None
    """What the store met, where that is why. Its own text holds no password and no values; its `__cause__`, the
    driver's error, may hold values of yours."""
    attempt: Attempt | None = None
    """Of a client's operation: the attempt that ended; at the operation's end its last."""
    operation_id: str | None = None
    """Of a client's operation: the same for all its attempts, and on their requests."""


Observer: TypeAlias = Callable[[Event], None]
"""Called in the request's own task, so it must not block. What it raises is logged and goes no further."""


def log_events(event: Event) -> None:
    """The observer used where none is given: loud events as errors, the rest at debug level.

    Of an error its text is logged and no traceback, which would print its cause.
    """
    level = logging.ERROR if event.loud else logging.DEBUG
    if _log.isEnabledFor(level):
        why = "" if event.error is None else f": {type(event.error).__name__}: {event.error}"
        if event.operation_id is not None:
            why = f" id={event.operation_id}{_told(event.attempt)}{why}"
        _log.log(level, "twicesafe.%s operation=%s key=%s%s", event.name, event.operation, event.key_hint, why)


def _told(attempt: Attempt | None) -> str:
    if attempt is None:
        return ""
    after = f"stop={attempt.stop}" if attempt.delay is None else f"delay={attempt.delay:.3f}"
    return (
        f" attempt={attempt.number} reason={attempt.reason!r} sent={attempt.sent} seconds={attempt.seconds:.3f} "
        f"{after} deadline_left={attempt.deadline_left:.3f} budget_left={attempt.budget_left:.1f}"
    )


def tell(observer: Observer, event: Event) -> None:
    """Tell `observer`. Nothing that an observer does may change what happens to a request."""
    try:
        observer(event)
    except Exception:  # noqa: BLE001 - an observer's fault is its own
        _log.exception("the observer raised on twicesafe.%s", event.name)
