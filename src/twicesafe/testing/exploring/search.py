"""Goes every way through a model, and finds the shortest one on which it breaks.

A schedule is a sequence of choices from the start to an end. Ways that come to equal states go on together, so a state
has to hold all that a later judgment rests on. Counted are schedules, not states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class BrokenError(AssertionError):
    """Something is so that must never be so."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Model(Protocol[S]):
    """What can happen, and what must not. States are compared, and never changed."""

    @property
    def start(self) -> S:
        """Where every schedule begins."""

    def choices(self, state: S) -> Sequence[str]:
        """What can happen next, each a word. None: the schedule has come to its end."""

    def after(self, state: S, choice: str) -> S:
        """The state that it leads to. BrokenError where something is so that must not be."""

    def check_end(self, state: S) -> None:
        """BrokenError where a schedule must not end like this."""


class Broken(NamedTuple):
    """How a model breaks. `schedule` is the shortest line for `replay`; `after`, how many were gone through before."""

    invariant: str
    what: str
    schedule: str
    after: int


class Explored(NamedTuple):
    """How far an exploration went. `schedules` are distinct sequences of choices that came to their end."""

    schedules: int
    states: int
    choices: int
    longest: int
    broken: Broken | None = None


class _Visited(NamedTuple):
    schedules: int
    longest: int


def explore(model: Model[S]) -> Explored:
    """Every schedule, or those before the first on which the model breaks."""
    ends: dict[S, _Visited] = {}
    met = choices = 0

    def visit(state: S) -> _Visited:
        nonlocal met, choices
        known = ends.get(state)
        if known is not None:
            met += known.schedules
            return known
        schedules = longest = 0
        for choice in model.choices(state):
            choices += 1
            further = visit(model.after(state, choice))
            schedules += further.schedules
            longest = max(longest, further.longest + 1)
        if not longest:
            model.check_end(state)
            met += 1
            schedules = 1
        found = ends[state] = _Visited(schedules, longest)
        return found

    try:
        whole = visit(model.start)
    except BrokenError as error:
        schedule, shorter = shortest(model, error.invariant)
        return Explored(met, len(ends), choices, 0, Broken(error.invariant, str(shorter), schedule, met))
    return Explored(whole.schedules, len(ends), choices, whole.longest)


def shortest(model: Model[S], invariant: str) -> tuple[str, BrokenError]:
    """The shortest schedule on which this breaks, as a line for `replay`. ValueError where there is none."""
    ways: dict[S, tuple[S, str] | None] = {model.start: None}
    waiting = deque([model.start])
    while waiting:
        state = waiting.popleft()
        choice = ""
        try:
            choices = model.choices(state)
            for choice in choices:
                further = model.after(state, choice)
                if further not in ways:
                    ways[further] = (state, choice)
                    waiting.append(further)
            if not choices:
                model.check_end(state)
        except BrokenError as error:
            if error.invariant == invariant:
                return _line(ways, state, choice), error
    raise ValueError(f"{invariant} holds on every schedule")


def _line(ways: dict[S, tuple[S, str] | None], state: S, last: str) -> str:
    words = [last] if last else []
    while (before := ways[state]) is not None:
        state, choice = before
        words.append(choice)
    return " ".join(reversed(words))


def replay(model: Model[S], schedule: str) -> S:
    """Go one way, word by word, and give the state that it comes to. BrokenError where it breaks.

    ValueError where a word is none of what can happen there.
    """
    state = model.start
    for number, choice in enumerate(schedule.split(), 1):
        if choice not in model.choices(state):
            possible = " ".join(model.choices(state)) or "nothing"
            raise ValueError(f"word {number}, {choice!r}, cannot happen there; what can: {possible}")
        state = model.after(state, choice)
    if not model.choices(state):
        model.check_end(state)
    return state
