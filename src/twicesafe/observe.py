"""What happened, for the people who run it. Key hints only: never a key, a body or a stored answer (R22, R44)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

_log: Final = logging.getLogger("twicesafe")


class Event(NamedTuple):
    """One thing worth counting. `loud` ones need a human: work may be done without a record of it."""

    name: str
    operation: str
    key_hint: str
    loud: bool


Observer: TypeAlias = Callable[[Event], None]
"""Called in the request's own task, so it must not block. What it raises is logged and goes no further."""


def log_events(event: Event) -> None:
    """The observer used where none is given: loud events as errors, the rest at debug level."""
    level = logging.ERROR if event.loud else logging.DEBUG
    if _log.isEnabledFor(level):
        _log.log(level, "twicesafe.%s operation=%s key=%s", event.name, event.operation, event.key_hint)


def tell(observer: Observer, event: Event) -> None:
    """Tell `observer`. Nothing that an observer does may change what happens to a request."""
    try:
        observer(event)
    except Exception:  # noqa: BLE001 - an observer's fault is its own
        _log.exception("the observer raised on twicesafe.%s", event.name)
