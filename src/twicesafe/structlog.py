"""Events as structlog writes them: `IdempotencyMiddleware(..., observer=StructuredLog())`.

What the standard library's log gets is in `twicesafe.observe.log_events`, with the same fields.
"""

from __future__ import annotations

from typing import Any

import structlog

from twicesafe.observe import Event, fields

__all__ = ["StructuredLog"]


class StructuredLog:
    """An observer: loud events as errors, the rest at debug level, each with its fields.

    `logger` is structlog's own, called `twicesafe`, where none is given; one that is given may be bound to more. With
    `counts` it is told of every run, too.
    """

    def __init__(self, logger: Any = None, *, counts: bool = False) -> None:
        self._logger = structlog.get_logger("twicesafe") if logger is None else logger
        self.counts = counts

    def __call__(self, event: Event) -> None:
        """Write it down."""
        told = fields(event)
        write = self._logger.error if event.loud else self._logger.debug
        write(f"twicesafe.{told.pop('event')}", **told)
