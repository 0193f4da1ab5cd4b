"""Numbers as bars: where each stands, in units of a picture that the page draws as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from twicesafe.dashboard.looking import PER_DECADE, Latency

WIDTH: Final = 240.0
HEIGHT: Final = 56.0
GAP: Final = 1.0


class Bar(NamedTuple):
    """One bar, from the picture's bottom."""

    x: float
    y: float
    width: float
    height: float
    says: str


class Plot(NamedTuple):
    """Bars over time, or over anything."""

    bars: tuple[Bar, ...]
    most: int
    """The highest bar's number; what the picture's height stands for is `scale`."""
    scale: int
    total: int
    marks: tuple[tuple[float, str], ...] = ()
    width: float = WIDTH
    height: float = HEIGHT


def over_time(numbers: Sequence[int], minutes_each: int = 1, height: float = HEIGHT) -> Plot:
    """One bar for each number, the last one for the time that is now."""
    scale = _scale(max(numbers, default=0))
    each = WIDTH / max(1, len(numbers))
    bars = []
    for place, number in enumerate(numbers):
        if number:
            tall = max(1.5, number / scale * height)
            ago = (len(numbers) - 1 - place) * minutes_each
            says = f"{number:,} {'now' if not ago else f'{ago} min ago'}"
            bars.append(Bar(_r(place * each), _r(height - tall), _r(max(1.0, each - GAP)), _r(tall), says))
    return Plot(tuple(bars), max(numbers, default=0), scale, sum(numbers), height=height)


def in_steps(numbers: Sequence[int], most: int) -> list[int]:
    """The same numbers in `most` sums, the last of them whole."""
    each = -(-len(numbers) // most)
    padded = [0] * (-len(numbers) % each) + list(numbers)
    return [sum(padded[place : place + each]) for place in range(0, len(padded), each)]


def of_latency(latency: Latency) -> Plot:
    """How many first runs took how long, on a scale of decades from the shortest to the longest."""
    used = [place for place, number in enumerate(latency.bins) if number]
    if not used:
        return Plot((), 0, 1, 0)
    first = min(used) // PER_DECADE * PER_DECADE
    last = (max(used) // PER_DECADE + 1) * PER_DECADE
    each = WIDTH / (last - first)
    scale = max(latency.bins)
    bars = [
        Bar(
            _r((place - first) * each),
            _r(HEIGHT - max(1.5, latency.bins[place] / scale * HEIGHT)),
            _r(max(1.0, each - GAP)),
            _r(max(1.5, latency.bins[place] / scale * HEIGHT)),
            f"{latency.bins[place]:,} took about {duration(10 ** ((place + 0.5) / PER_DECADE))}",
        )
        for place in used
    ]
    marks = [
        (_r((place - first) * each / WIDTH * 100), duration(10 ** (place / PER_DECADE)))
        for place in range(first, last + 1, PER_DECADE)
    ]
    return Plot(tuple(bars), scale, scale, latency.number, tuple(marks))


def duration(us: float | None) -> str:
    """For people: two figures, and a unit."""
    if us is None:
        return "–"
    for size, unit in ((1_000.0, "µs"), (1_000_000.0, "ms"), (60_000_000.0, "s"), (3_600_000_000.0, "min")):
        if us < size:
            before = {"µs": 1.0, "ms": 1_000.0, "s": 1_000_000.0, "min": 60_000_000.0}[unit]
            return f"{_figures(us / before)} {unit}"
    hours = us / 3_600_000_000
    return f"{_figures(hours)} h" if hours < 48 else f"{_figures(hours / 24)} days"


def _figures(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < 10 else f"{number:.0f}"


def _scale(most: int) -> int:
    """The next round number."""
    scale = 1
    while True:
        for step in (1, 2, 3, 4, 5, 6, 8, 10):
            if most <= step * scale:
                return step * scale
        scale *= 10


def _r(number: float) -> float:
    return round(number, 2)
