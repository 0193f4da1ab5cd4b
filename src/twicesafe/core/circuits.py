"""Circuit breakers of other libraries, as the rules use them: asked before an attempt, told what came of it.

A breaker is anything that is entered before what may fail, refuses by raising, and is left with the exception of what
failed: most libraries' breakers are such context managers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeAlias

Breaker: TypeAlias = Callable[[str], AbstractContextManager[Any]]
"""Gives the breaker of a server, by its host and port; a new one for each attempt, or the same each time.

It is called and used between awaits, so it must not block.
"""


class Circuit:
    """One server's breaker, during one operation."""

    __slots__ = ("_breaker", "_entered", "_host")

    def __init__(self, breaker: Breaker, host: str) -> None:
        self._breaker = breaker
        self._host = host
        self._entered: AbstractContextManager[Any] | None = None

    def refusal(self) -> Exception | None:
        """Ask for one attempt. What the breaker raises where it is open."""
        entered = self._breaker(self._host)
        try:
            entered.__enter__()
        except Exception as refusal:  # noqa: BLE001 - each library has its own
            return refusal
        self._entered = entered
        return None

    def ended(self, failure: BaseException | None) -> None:
        """The attempt is over, and failed where `failure` is given: GeneratorExit where its caller gave it up."""
        entered, self._entered = self._entered, None
        if entered is not None:
            # Some raise anew what they are told, or that they are open from now on.
            with suppress(Exception, GeneratorExit):
                entered.__exit__(None if failure is None else type(failure), failure, None)
