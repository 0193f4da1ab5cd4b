"""The table of clients and cases at the end of a run: how many cases of each group each client passed.

What a test played is noted as one of its properties, which find their way from xdist's workers too. The table is shown
where some client went through most of the cases.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

PROPERTY: Final = "client and case"
MOST: Final = 60


def noted(client: str, group: str) -> tuple[str, list[str]]:
    """The property of a test that plays a case of this group by this client."""
    return PROPERTY, [client, group]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show the table, once, where the reports come together."""
    passed: dict[str, Counter[str]] = {}
    failed: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY and getattr(report, "when", "") == "call":
                    client, group = value
                    passed.setdefault(client, Counter())[group] += report.passed
                    failed.setdefault(client, Counter())[group] += not report.passed
    if any(counter.total() >= MOST for counter in passed.values()):
        terminalreporter.section("the clients, by group of cases")
        for line in table(passed, failed):
            terminalreporter.write_line(line)


def table(passed: dict[str, Counter[str]], failed: dict[str, Counter[str]]) -> list[str]:
    """A line for each client, with what it passed of each group, and NO where it failed one."""
    groups = list(dict.fromkeys(group for counter in passed.values() for group in counter))
    widths = [max(len(group), 6) for group in groups]
    first = max(map(len, passed))
    head = zip(groups, widths, strict=True)
    lines = [" " * first + "".join([f"  {group:>{width}}" for group, width in head])]
    for client, counter in passed.items():
        cells = []
        for group, width in zip(groups, widths, strict=True):
            failures = failed[client][group]
            cell = f"{failures} NO" if failures else f"{counter[group]} ok" if counter[group] else "-"
            cells.append(f"  {cell:>{width}}")
        lines.append(f"{client:<{first}}" + "".join(cells))
    return lines
