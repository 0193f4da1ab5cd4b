"""Rounds that alternate between subjects, so that a machine whose speed drifts hurts them all alike."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict


class Row(TypedDict):
    """One line of the results."""

    case: str
    subject: str
    median: float
    unit: str
    ratio_to_floor: float
    runs: int


@dataclass
class Subject:
    """`run(n)` does the work n times and returns what it took: seconds in all, or a figure of its own unit."""

    name: str
    run: Callable[[int], Awaitable[float]]
    figures: list[float] = field(default_factory=list)


async def interleaved(subjects: Sequence[Subject], *, rounds: int, times: int) -> None:
    """A warm-up round, then `rounds` rounds in which every subject has its turn, first and last by turns."""
    for subject in subjects:
        await subject.run(max(1, times // 10))
    for number in range(rounds):
        order = list(subjects) if number % 2 == 0 else list(reversed(subjects))
        for subject in order:
            gc.collect()
            subject.figures.append(await subject.run(times))


def rows(case: str, unit: str, subjects: Sequence[Subject], scale: Callable[[float], float]) -> list[Row]:
    """The table's lines: medians, and ratios taken round by round before their median is."""
    floor = next(subject for subject in subjects if subject.name == "floor")
    return [
        Row(
            case=case,
            subject=subject.name,
            median=round(scale(statistics.median(subject.figures)), 3),
            unit=unit,
            ratio_to_floor=round(
                statistics.median(mine / theirs for mine, theirs in zip(subject.figures, floor.figures, strict=True)), 3
            ),
            runs=len(subject.figures),
        )
        for subject in subjects
    ]


def table(found: Sequence[Row]) -> str:
    """The rows for people."""
    head = ("case", "subject", "median", "unit", "x floor", "runs")
    lines: list[tuple[str, ...]] = [head]
    lines += [
        (r["case"], r["subject"], f"{r['median']:,.3f}", r["unit"], f"{r['ratio_to_floor']:.2f}", str(r["runs"]))
        for r in found
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    left: Any = (True, True, False, True, False, False)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in lines
    )
