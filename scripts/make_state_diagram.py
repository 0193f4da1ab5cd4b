"""Draws docs/states.svg from lifecycle.TRANSITIONS, so that the picture cannot say anything but the table.

Only the places are chosen by hand; a standing or a transition that has none stops the drawing.

    python scripts/make_state_diagram.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from twicesafe.core.lifecycle import TRANSITIONS, Event, Standing

TARGET: Final = Path(__file__).parents[1] / "docs" / "states.svg"

AGAIN: Final = "free again"
"""`free` stands twice, where a life begins and where it ends, or half of the arrows would cross the page."""


class Box(NamedTuple):
    """A standing's place: its middle."""

    x: float
    y: float
    note: str


WIDTH: Final = 1220
HEIGHT: Final = 570
HALF_WIDTH: Final = 76
HALF_HEIGHT: Final = 26

BOXES: Final[dict[str, Box]] = {
    Standing.FREE: Box(110, 120, "nothing is remembered"),
    Standing.CLAIMED: Box(430, 120, "somebody runs it"),
    Standing.COMPLETED: Box(810, 120, "the answer is kept"),
    Standing.TOMBSTONE: Box(1110, 120, "done, body not kept"),
    Standing.STALE: Box(430, 340, "its owner is silent"),
    Standing.ANSWERED: Box(690, 340, "its answer had begun"),
    Standing.UNKNOWN: Box(810, 500, "nobody can prove it"),
    AGAIN: Box(1110, 500, "forgotten"),
}


class Route(NamedTuple):
    """How an arrow runs: where it leaves and enters its boxes (-1 to 1 of the half sizes).

    `label` is how far along the arrow its words stand; `through` are its two control points where it is not straight.
    """

    leave: tuple[float, float]
    enter: tuple[float, float]
    label: float = 0.5
    through: tuple[tuple[float, float], tuple[float, float]] | None = None


_S: Final = Standing
ROUTES: Final[dict[tuple[str, str], Route]] = {
    (_S.FREE, _S.CLAIMED): Route((1, -0.4), (-1, -0.4)),
    (_S.CLAIMED, _S.FREE): Route((-1, 0.4), (1, 0.4)),
    (_S.CLAIMED, _S.CLAIMED): Route((-0.45, -1), (0.45, -1), 0.5, ((376, 34), (484, 34))),
    (_S.CLAIMED, _S.COMPLETED): Route((1, 0), (-1, 0)),
    (_S.CLAIMED, _S.UNKNOWN): Route((-0.75, 1), (-1, 0.4), 0.68, ((170, 400), (400, 530))),
    (_S.CLAIMED, _S.STALE): Route((0.3, 1), (0.3, -1), 0.55),
    (_S.CLAIMED, _S.ANSWERED): Route((1, 0.6), (0.2, -1), 0.42, ((600, 200), (690, 240))),
    (_S.STALE, _S.CLAIMED): Route((-0.4, -1), (-0.4, 1), 0.35),
    (_S.STALE, _S.FREE): Route((-1, -0.4), (0.1, 1), 0.62),
    (_S.STALE, _S.COMPLETED): Route((0.8, -1), (-0.9, 1), 0.3),
    (_S.STALE, _S.ANSWERED): Route((1, 0), (-1, 0)),
    (_S.STALE, _S.UNKNOWN): Route((0.2, 1), (-1, -0.3), 0.5),
    (_S.ANSWERED, _S.CLAIMED): Route((-0.4, -1), (0.8, 1), 0.2),
    (_S.ANSWERED, _S.COMPLETED): Route((0.4, -1), (-0.3, 1), 0.4),
    (_S.ANSWERED, _S.UNKNOWN): Route((0.2, 1), (-0.3, -1), 0.45),
    (_S.ANSWERED, _S.TOMBSTONE): Route((1, -0.1), (-0.3, 1), 0.42),
    (_S.COMPLETED, _S.TOMBSTONE): Route((1, 0), (-1, 0), 0.48),
    (_S.COMPLETED, AGAIN): Route((0.6, 1), (-0.5, -1), 0.72),
    (_S.TOMBSTONE, AGAIN): Route((0.2, 1), (0.2, -1), 0.4),
    (_S.UNKNOWN, _S.COMPLETED): Route((0.15, -1), (0.15, 1), 0.22),
    (_S.UNKNOWN, AGAIN): Route((1, 0), (-1, 0)),
}

STYLE: Final = """\
.box { fill: #fff; stroke: #1f2937; stroke-width: 1.5 } .stored { fill: #eef2ff }
.name { font: 600 15px system-ui, sans-serif; fill: #111827 } .note { font: 11px system-ui, sans-serif; fill: #6b7280 }
.arrow { fill: none; stroke: #6b7280; stroke-width: 1.4 } .time { stroke-dasharray: 5 4 } .head { fill: #6b7280 }
.word { font: 12px system-ui, sans-serif; fill: #1f2937; stroke: #fff; stroke-width: 5px; paint-order: stroke }
.ground { fill: #fff }
@media (prefers-color-scheme: dark) {
.box { fill: #1f2937; stroke: #9ca3af } .stored { fill: #312e81 } .name { fill: #f9fafb } .note { fill: #cbd5e1 }
.arrow { stroke: #9ca3af } .head { fill: #9ca3af } .word { fill: #e5e7eb; stroke: #0d1117 } .ground { fill: #0d1117 }
}"""

ARROW_HEAD: Final = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="head" d="M0 0 10 5 0 10z"/></marker></defs>'
)

BY_TIME: Final = {Event.LEASE_ENDS, Event.ANSWER_CUT, Event.BODY_ENDS, Event.KEY_ENDS}
LEFT_FREE: Final = {Standing.CLAIMED, Standing.STALE}
"""Whose way back to `free` is drawn to the beginning, the others' to the end."""

STORED: Final = {Standing.CLAIMED, Standing.COMPLETED, Standing.UNKNOWN}
"""Standings that bear the name of a stored state; the rest are made of one by time."""


def arrows() -> dict[tuple[str, str], list[Event]]:
    """The table, events of one way joined."""
    ways: dict[tuple[str, str], list[Event]] = {}
    for origin, moves in TRANSITIONS.items():
        for event, goal in moves.items():
            back = goal is Standing.FREE and origin not in LEFT_FREE
            ways.setdefault((origin, AGAIN if back else goal), []).append(event)
    return ways


def drawing() -> str:
    """The whole file."""
    ways = arrows()
    unplaced = (ways.keys() ^ ROUTES.keys()) | ({*Standing, AGAIN} ^ BOXES.keys())
    if unplaced:
        raise SystemExit(f"the table changed: give a place to, or take it from, {sorted(map(str, unplaced))}")
    parts = [_arrow(origin, goal, events) for (origin, goal), events in ways.items()]
    parts += [_word(origin, goal, events) for (origin, goal), events in ways.items()]
    parts += [_box(name, box) for name, box in BOXES.items()]
    title = "The life of a record: its standings, and the events that lead from one to another"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">',
            "<!-- Made by scripts/make_state_diagram.py from twicesafe.core.lifecycle.TRANSITIONS. Do not edit. -->",
            f"<title>{title}</title>",
            f"<style>\n{STYLE}\n</style>",
            ARROW_HEAD,
            f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _box(name: str, box: Box) -> str:
    stored = " stored" if name in STORED else ""
    return (
        f'<rect class="box{stored}" x="{box.x - HALF_WIDTH:g}" y="{box.y - HALF_HEIGHT:g}" '
        f'width="{2 * HALF_WIDTH}" height="{2 * HALF_HEIGHT}" rx="9"/>'
        f'<text class="name" x="{box.x:g}" y="{box.y - 3:g}" text-anchor="middle">{escape(name)}</text>'
        f'<text class="note" x="{box.x:g}" y="{box.y + 14:g}" text-anchor="middle">{escape(box.note)}</text>'
    )


def _curve(origin: str, goal: str) -> tuple[tuple[float, float], ...]:
    """The four points of the arrow's curve."""
    route, here, there = ROUTES[origin, goal], BOXES[origin], BOXES[goal]
    x0, y0 = here.x + route.leave[0] * HALF_WIDTH, here.y + route.leave[1] * HALF_HEIGHT
    x3, y3 = there.x + route.enter[0] * HALF_WIDTH, there.y + route.enter[1] * HALF_HEIGHT
    first, second = route.through or (
        ((2 * x0 + x3) / 3, (2 * y0 + y3) / 3),
        ((x0 + 2 * x3) / 3, (y0 + 2 * y3) / 3),
    )
    return (x0, y0), first, second, (x3, y3)


def _arrow(origin: str, goal: str, events: list[Event]) -> str:
    points = " ".join(f"{x:.0f},{y:.0f}" for x, y in _curve(origin, goal))
    start, curve = points.split(" ", 1)
    by_time = " time" if set(events) <= BY_TIME else ""
    return f'<path class="arrow{by_time}" d="M{start} C{curve}" marker-end="url(#head)"/>'


def _word(origin: str, goal: str, events: list[Event]) -> str:
    at = ROUTES[origin, goal].label
    weights = ((1 - at) ** 3, 3 * at * (1 - at) ** 2, 3 * at * at * (1 - at), at**3)
    curve = _curve(origin, goal)
    x = sum(weight * point[0] for weight, point in zip(weights, curve, strict=True))
    y = sum(weight * point[1] for weight, point in zip(weights, curve, strict=True))
    words = escape(", ".join(events))
    return f'<text class="word" x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{words}</text>'


if __name__ == "__main__":
    TARGET.write_text(drawing(), encoding="utf-8")
