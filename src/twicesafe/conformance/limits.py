"""What a check may take at most."""

from __future__ import annotations

from dataclasses import dataclass


class OutOfBoundsError(Exception):
    """The trial has used up its time or its requests. The message says which."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of time, of requests, and of places."""

    seconds: float = 300.0
    """All in all; trials that would begin later are not made."""
    trial: float = 45.0
    """Seconds for one trial. A count of effects at its end has `answer` seconds of its own."""
    answer: float = 15.0
    """Seconds until an answer has to be there."""
    beside: float = 0.5
    """Seconds without an answer after which a request is taken to wait for the one that is at work."""
    held: float = 30.0
    """Seconds for which whoever died at work may hold a key: told to wait for longer, a client waits for nobody."""
    parallel: int = 8
    """Requests at the same time."""
    anywhere: bool = False
    """Whether the target may be on another machine."""
