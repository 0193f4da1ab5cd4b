"""Rounds that alternate between subjects, so that a machine whose speed drifts hurts them all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict


class Row(TypedDict):
    """One line of the results. `low` and `high` are the quartiles of the runs; `ratio_to_floor` is the median of the
    ratios that one round's figures have, which is not the ratio of the medians."""

    case: str
    subject: str
    median: float
    low: float
    high: float
    unit: str
    ratio_to_floor: float
    runs: int


@dataclass
class Subject:
    """`run(n)` does the work n times and returns what it took: seconds in all, or a figure of its own unit."""

    name: str
    run: Callable[[int], Awaitable[float]]
    figures: list[float] = field(default_factory=list)


@dataclass
class Pace:
    """How much is done, for all benchmarks of this process."""

    quick: bool = False
    """Just enough to see that it works: few rounds of little. The figures mean nothing."""
    largest: int = 1_000_000
    """Records in the largest store that `growth` fills."""
    seconds: float = 6.0
    """After so long a comparison begins no further round, if it has three."""

    def less(self, count: int, quickly: int | None = None) -> int:
        """That many, or when it is to be quick a tenth, or `quickly`."""
        if not self.quick:
            return count
        return max(1, count // 10) if quickly is None else quickly


PACE = Pace()
FEWEST = 3


async def interleaved(subjects: Sequence[Subject], *, rounds: int, times: int, patience: float = 1.0) -> None:
    """A warm-up round, then `rounds` rounds in which every subject has its turn, first and last by turns.

    On a slow machine there are fewer, three at least, and less is done in each, a quarter at least. `patience` is how
    many times as long as others it may take.
    """
    times, rounds = PACE.less(times), PACE.less(rounds, FEWEST)
    seconds = PACE.seconds * patience
    began = time.perf_counter()
    for subject in subjects:
        await subject.run(max(1, times // 10))
    warm = time.perf_counter()
    expected = FEWEST * 10 * max(warm - began, 1e-9)
    times = max(1, times // 4, int(times * min(1.0, seconds / expected)))
    end = warm + seconds
    for number in range(rounds):
        if number >= FEWEST and time.perf_counter() > end:
            break
        order = list(subjects) if number % 2 == 0 else list(reversed(subjects))
        for subject in order:
            gc.collect()
            subject.figures.append(await subject.run(times))


def rows(
    case: str, unit: str, subjects: Sequence[Subject], scale: Callable[[float], float], floor: str = "floor"
) -> list[Row]:
    """The table's lines: medians, and ratios taken round by round before their median is."""
    beside = next(subject for subject in subjects if subject.name == floor)
    return [
        row(case, subject.name, unit, [scale(figure) for figure in subject.figures], ratio(subject, beside))
        for subject in subjects
    ]


def rates(case: str, subjects: Sequence[Subject]) -> list[Row]:
    """The lines of subjects whose figures are seconds, as rates."""
    turned = [Subject(subject.name, subject.run, [1 / seconds for seconds in subject.figures]) for subject in subjects]
    return rows(case, "per s", turned, lambda rate: rate)


def ratio(subject: Subject, floor: Subject) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(mine / theirs for mine, theirs in zip(subject.figures, floor.figures, strict=True))


def row(case: str, subject: str, unit: str, figures: Sequence[float], ratio_to_floor: float) -> Row:
    """One line. 0 is the ratio of what has no floor."""
    low, high = figures[0], figures[-1]
    if len(figures) > 1:
        low, _, high = statistics.quantiles(figures, n=4, method="inclusive")
    return Row(
        case=case,
        subject=subject,
        median=round(statistics.median(figures), 3),
        low=round(low, 3),
        high=round(high, 3),
        unit=unit,
        ratio_to_floor=round(ratio_to_floor, 3),
        runs=len(figures),
    )


def table(found: Sequence[Row]) -> str:
    """The rows for people."""
    head = ("case", "subject", "median", "low", "high", "unit", "x floor", "runs")
    lines: list[tuple[str, ...]] = [head]
    lines += [
        (
            r["case"], r["subject"], *(f"{figure:,.3f}" for figure in (r["median"], r["low"], r["high"])), r["unit"],
            f"{r['ratio_to_floor']:.2f}", str(r["runs"]),
        )
        for r in found
    ]  # fmt: skip
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    left: Any = (True, True, False, False, False, True, False, False)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in lines
    )
