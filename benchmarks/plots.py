"""Draws results: bars of ratios to the floor, and lines over the number of records. Nothing but text comes out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from benchmarks.measure import Row

WIDTH = 860
LABELS = 270
"""Of the width, for the names of the subjects."""
FIGURES = 170
"""And for the figures at the right."""
BAR = 17
GAP = 30
"""Above a case: its title stands in it."""

STYLE = """<style>
.ground { fill: #fff } .bar { fill: #cbd5e1 } .ours { fill: #6366f1 } .floor { fill: #94a3b8 }
.one { stroke: #111827; stroke-width: 1; stroke-dasharray: 3 3 } .spread { stroke: #111827; stroke-width: 1.2 }
.case { font: 600 12px system-ui, sans-serif; fill: #111827 } .name { font: 12px system-ui, sans-serif; fill: #374151 }
.line { fill: none; stroke-width: 2 } .axis { fill: none; stroke: #9ca3af; stroke-width: 1 }
.a { stroke: #6366f1; fill: #6366f1 } .b { stroke: #059669; fill: #059669 } .c { stroke: #d97706; fill: #d97706 }
.d { stroke: #db2777; fill: #db2777 } .line.a, .line.b, .line.c, .line.d { fill: none }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } .bar { fill: #475569 } .floor { fill: #64748b }
.case { fill: #f9fafb } .name { fill: #cbd5e1 } .one, .spread { stroke: #f9fafb }
}
</style>"""


def _drawing(height: float, title: str, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
    lines = [
        f'{head} aria-label="{escape(title)}">',
        "<!-- Made by benchmarks/page.py from benchmarks/results. Do not edit. -->",
        f"<title>{escape(title)}</title>",
        STYLE,
        f'<rect class="ground" width="{WIDTH}" height="{height:.0f}"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(x: float, y: float, what: str, anchor: str) -> str:
    return f'<text class="name" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(what)}</text>'


def bars(title: str, rows: Sequence[Row]) -> str:
    """Cases below one another, each with a bar for each subject: its ratio to the floor, and the spread of the runs.

    The scale is logarithmic and one for all cases; bars begin at the dashed line, which is the floor.
    """
    shown = [row for row in rows if row["ratio_to_floor"] > 0]
    ends = [end for row in shown for end in (*_spread(row), row["ratio_to_floor"], 1.0)]
    low, high = math.log(min(ends) / 1.15), math.log(max(ends) * 1.05)
    span = WIDTH - LABELS - FIGURES

    def at(ratio: float) -> float:
        return LABELS + span * (math.log(ratio) - low) / (high - low)

    parts, y = [], 8.0
    for case, group in groupby(shown, key=lambda row: row["case"]):
        y += GAP
        parts.append(f'<text class="case" x="10" y="{y - 9:.0f}">{escape(case)}</text>')
        top = y
        for row in group:
            kind = "ours" if row["subject"].startswith("twicesafe") else "floor" if row["subject"] == "floor" else "bar"
            begin, end = sorted((at(1), at(row["ratio_to_floor"])))
            wide = max(2.0, end - begin)
            left, right = (at(edge) for edge in _spread(row))
            middle = y + BAR / 2 - 1
            parts += [
                _text(LABELS - 8, y + 12, row["subject"], "end"),
                f'<rect class="{kind}" x="{begin:.1f}" y="{y:.0f}" width="{wide:.1f}" height="{BAR - 3}"/>',
                f'<path class="spread" d="M{left:.1f},{middle:.1f}H{right:.1f}"/>',
                _text(WIDTH - 10, y + 12, f"{row['ratio_to_floor']:.2f} x · {shown_as(row)}", "end"),
            ]
            y += BAR
        parts.append(f'<path class="one" d="M{at(1):.1f},{top - 3:.0f}V{y:.0f}"/>')
    return _drawing(y + 14, title, parts)


def _spread(row: Row) -> tuple[float, float]:
    """The quartiles of the runs, as ratios."""
    ratio, median = row["ratio_to_floor"], row["median"]
    if median <= 0 or row["low"] <= 0:
        return ratio, ratio
    return ratio * row["low"] / median, ratio * row["high"] / median


class Point(NamedTuple):
    """On a line."""

    x: float
    y: float
    low: float
    high: float


def lines(title: str, named: Mapping[str, Sequence[Point]], unit: str) -> str:
    """Lines over a logarithmic scale that begins each line's name at its end; upwards from zero."""
    every = [point for points in named.values() for point in points]
    left, right, top, bottom = 80.0, WIDTH - 150.0, 24.0, 300.0
    first, last = math.log(min(p.x for p in every)), math.log(max(p.x for p in every))
    highest = max(p.high for p in every) * 1.05

    def across(x: float) -> float:
        return left + (right - left) * ((math.log(x) - first) / (last - first) if last > first else 0.5)

    def up(y: float) -> float:
        return bottom - (bottom - top) * y / highest

    parts = [f'<path class="axis" d="M{left:.0f},{top:.0f}V{bottom:.0f}H{right:.0f}"/>']
    parts += [_text(across(x), bottom + 18, f"{x:,.0f}", "middle") for x in sorted({point.x for point in every})]
    parts += [_text(left - 6, up(highest * part / 4) + 4, figure(highest * part / 4), "end") for part in range(5)]
    parts.append(_text(10, 14, unit, "start"))
    for colour, points in zip("abcd" * len(named), named.values(), strict=False):
        path = " ".join(f"{'M' if n == 0 else 'L'}{across(p.x):.1f},{up(p.y):.1f}" for n, p in enumerate(points))
        parts.append(f'<path class="line {colour}" d="{path}"/>')
        parts += [
            f'<path class="line {colour}" d="M{across(p.x):.1f},{up(p.low):.1f}V{up(p.high):.1f}"/>'
            f'<circle class="{colour}" cx="{across(p.x):.1f}" cy="{up(p.y):.1f}" r="3.5"/>'
            for p in points
        ]
    lowest = math.inf
    for name, points in sorted(named.items(), key=lambda line: line[1][-1].y):
        # No name stands on another.
        lowest = min(up(points[-1].y) + 4, lowest - 14)
        parts.append(_text(across(points[-1].x) + 10, lowest, name, "start"))
    return _drawing(bottom + 34, title, parts)


def shown_as(row: Row) -> str:
    """The median in its unit."""
    return f"{figure(row['median'])} {row['unit']}"


def figure(value: float) -> str:
    """Three digits that count, and no more."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
