"""A check: a name, what it cites, when it applies, and the trial itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from twicesafe.testing.trial import Trial

Body: TypeAlias = Callable[[Trial], Awaitable[None]]


class Need(NamedTuple):
    """Something a check is about; where the store has it not, the check does not apply."""

    has: Callable[[Trial], bool]
    otherwise: str


TRANSACTIONS: Final = Need(lambda trial: trial.store.transactional, "the store has no transactions")
ELSEWHERE: Final = Need(
    lambda trial: trial.subject.elsewhere is not None, "the records are this one store's alone (no `elsewhere`)"
)
STATEMENTS: Final = Need(
    lambda trial: trial.subject.before_statement is not None, "the store works in one step (no `before_statement`)"
)
SETTLES_STALE: Final = Need(
    lambda trial: hasattr(trial.subject.store, "settle_stale"), "the store does not look for stale claims by itself"
)
RESUMES: Final = Need(
    lambda trial: hasattr(trial.subject.store, "reopen"), "the store does not let operations of several steps go on"
)


class Check(NamedTuple):
    """One promise, put to the test on a fresh store."""

    name: str
    cites: str
    promise: str
    needs: tuple[Need, ...]
    body: Body


class Checks:
    """A chapter of checks; the decorator files what it decorates, under its name and the words of its docstring."""

    def __init__(self) -> None:
        self.filed: list[Check] = []

    def check(self, cites: str, *needs: Need) -> Callable[[Body], Body]:
        """File a check that cites these invariants and faults."""

        def file(body: Body) -> Body:
            name = body.__name__
            self.filed.append(Check(name, cites, " ".join((body.__doc__ or "").split()), needs, body))
            return body

        return file
