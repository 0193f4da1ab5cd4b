"""What is made when it is asked for, and then kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class WhenAsked(Generic[T]):
    """functools.cached_property as it is since Python 3.12: without the lock, which costs more than what it guards.

    Two threads that ask at once may both make it. What is made here follows from what never changes.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        made = owner.__dict__[self._name] = self._make(owner)
        return made
