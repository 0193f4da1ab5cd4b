"""The tables at the end of a run: how many schedules were gone through, and which invariants told of which wrongs."""

from __future__ import annotations

from typing import Any

from twicesafe.testing.exploring import Explored

PROPERTY = "schedules gone through"
WRONGS = "a wrong that was told"


def note(request: Any, scenario: str, explored: Explored, seconds: float) -> None:
    """Have it in the table."""
    figures = [scenario, explored.schedules, explored.states, explored.longest, round(seconds, 2)]
    request.node.user_properties.append((PROPERTY, figures))


def wrong_line(what: str, found: Any) -> str:
    """A line of the documents' table: the wrong, what told, after how many schedules, and the shortest one."""
    return f"| {what} | {found.invariant} | {found.after:,} | `{found.schedule}` |"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """All that were noted, in whatever process."""
    noted = _noted(terminalreporter, PROPERTY)
    if noted:
        terminalreporter.section("schedules of the real code, each a sequence of choices")
        for line in table(noted):
            terminalreporter.write_line(line)
    wrongs = _noted(terminalreporter, WRONGS)
    if wrongs:
        terminalreporter.section("wrongs done to the code: what told, on which schedule")
        for line in wrongs:
            terminalreporter.write_line(line)


def _noted(terminalreporter: Any, what: str) -> list[Any]:
    return [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in getattr(report, "user_properties", ())
        if name == what
    ]


def table(noted: list[list[Any]]) -> list[str]:
    """A line for each scenario, and one for all."""
    width = max([len(scenario) for scenario, *_ in noted] + [len("together")])
    lines = [f"{'':<{width}}  {'schedules':>15}  {'states':>8}  {'longest':>7}  {'seconds':>7}"]
    rows = [
        *noted,
        ["together", *(sum(row[column] for row in noted) for column in (1, 2)), "", sum(row[4] for row in noted)],
    ]
    lines += [
        f"{scenario:<{width}}  {schedules:>15,}  {states:>8,}  {longest:>7}  {seconds:>7.2f}"
        for scenario, schedules, states, longest, seconds in rows
    ]
    return lines
