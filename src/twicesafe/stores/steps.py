"""A store's logic as generators that yield statements and are sent rows, and the two loops that perform them.

Sync and async share every line but these loops, and a test can stop any of them after step n, for every n.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

S = TypeVar("S")
A = TypeVar("A")
R = TypeVar("R")

Row: TypeAlias = Sequence[Any]
Rows: TypeAlias = Sequence[Row]


class Statement(NamedTuple):
    """One SQL statement, ready for one driver. Its answer is all of its rows, which may be none."""

    name: str
    text: str
    parameters: tuple[Any, ...]
    writes: bool
    """Whether a lost reply leaves open what became of it."""
    returns: bool
    """Whether it answers with rows of its own. One that writes and does not answers with an empty row for each row
    that it changed."""


class Batch(NamedTuple):
    """Statements to be performed one after the other on one connection, each with a snapshot of its own.

    A driver may send them in one go. The answer is that of the last one.
    """

    statements: tuple[Statement, ...]


Step: TypeAlias = Statement | Batch
Steps: TypeAlias = Generator[Step, Rows, R]


def once(step: Step) -> Steps[Rows]:
    """One step by itself."""
    rows = yield step
    return rows


def drive(steps: Generator[S, A, R], perform: Callable[[S], A]) -> R:
    """Run `steps` to their end; whatever `perform` raises ends them there."""
    try:
        step = next(steps)
        while True:
            step = steps.send(perform(step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def adrive(steps: Generator[S, A, R], perform: Callable[[S], Awaitable[A]]) -> R:
    """`drive`, for asyncio. Cancelled at any step, it closes `steps` there."""
    try:
        step = next(steps)
        while True:
            step = steps.send(await perform(step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()
