"""Where a program stands. A generator cannot be copied, so a place is known by all the answers on the way to it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Any, NamedTuple, TypeAlias

Program: TypeAlias = Generator[Any, Any, Any]
"""Yields what it wants done. It must come to the same wishes by the same answers: no clock, no chance."""


class Told(NamedTuple):
    """Yielded for the model to know; it asks for nothing and is answered None at once."""

    what: Any


class Thrown(NamedTuple):
    """An answer that is an exception; its like, made of its arguments, is raised where the program waits."""

    error: BaseException

    def again(self) -> BaseException:
        """A new one each time, for what is raised gathers where it has been."""
        return type(self.error)(*self.error.args)


class Place:
    """One place of one program. Two are the same place only if they are the same object.

    `wants` is what the program waits for, None once it has ended, with `result`. `told` is what it told since the place
    before. An error that it does not catch passes through.
    """

    __slots__ = ("_make", "_path", "_places", "_running", "ended", "result", "told", "wants")

    def __init__(self, make: Callable[[], Program]) -> None:
        """Where the program begins."""
        self._make = make
        self._running: Program | None = None
        self._path: tuple[Any, ...] = ()
        self._places: dict[Hashable, Place] = {}
        self._start(make(), None)

    def after(self, answer: Hashable) -> Place:
        """The place that the program comes to by this answer."""
        known = (type(answer.error), str(answer.error)) if type(answer) is Thrown else answer
        place = self._places.get(known)
        if place is None:
            place = self._places[known] = object.__new__(Place)
            place._make, place._path, place._places = self._make, (*self._path, answer), {}
            running, self._running = self._running, None
            place._start(running or self._again(), answer)
        return place

    def _again(self) -> Program:
        """The program once more, come to this place."""
        program = self._make()
        _past_told(program, None, [])
        for answer in self._path:
            _past_told(program, answer, [])
        return program

    def _start(self, program: Program, answer: Any) -> None:
        told: list[Any] = []
        self._running = program
        self.ended, self.result, self.wants = False, None, None
        try:
            self.wants = _past_told(program, answer, told)
        except StopIteration as end:
            self.ended, self.result, self._running = True, end.value, None
        self.told = tuple(told)


def _past_told(program: Program, answer: Any, told: list[Any]) -> Any:
    wants = program.throw(answer.again()) if type(answer) is Thrown else program.send(answer)
    while type(wants) is Told:
        told.append(wants.what)
        wants = program.send(None)
    return wants
