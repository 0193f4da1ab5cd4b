"""The table of frameworks and cases at the end of a run.

What a case was tried on is noted as a property of its test, which finds its way from xdist's workers too. The table is
shown where some framework went through at least half of the cases.
"""

from __future__ import annotations

from typing import Any, Final

PROPERTY: Final = "behaviour"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show the table, once, where the reports come together."""
    columns: dict[str, dict[str, dict[str, bool]]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY and getattr(report, "when", "") == "call":
                    probe, server, case = value
                    columns.setdefault(probe, {}).setdefault(server, {})[case] = report.passed
    if not columns:
        return
    # Collected already, where there is anything to show.
    from tests.behaviour.case import cases
    from tests.behaviour.serving import probes

    names = {case.name: case for case in cases()}
    if not any(2 * len(tried) >= len(names) for servers in columns.values() for tried in servers.values()):
        return
    reasons = {
        probe.name: {name: reason for name, case in names.items() if (reason := case.missing(probe.not_offered))}
        for probe in probes()
    }
    terminalreporter.section("the behaviour, by framework and case")
    for line in table(list(names), columns, reasons):
        terminalreporter.write_line(line)


def table(
    cases: list[str], columns: dict[str, dict[str, dict[str, bool]]], reasons: dict[str, dict[str, str]]
) -> list[str]:
    """A line for each case, a numbered column for each framework; which number is which, and why a case has no mark.

    `columns`: framework -> server -> case -> whether it held.
    """
    frameworks = sorted(columns)
    width = max(map(len, cases))
    lines = [" " * width + "".join([f"{number:>4}" for number in range(1, len(frameworks) + 1)])]
    for case in cases:
        marks = [_mark(case, columns[framework], reasons.get(framework, {})) for framework in frameworks]
        lines.append((f"{case:<{width}}" + "".join([f"{mark:>4}" for mark in marks])).rstrip())
    for number, framework in enumerate(frameworks, 1):
        servers = ", ".join([f"{server}: {_counted(tried)}" for server, tried in columns[framework].items()])
        lines += ["" if number == 1 else None, f"{number:>4}  {framework} under {servers}"]
        for reason in sorted(set(reasons.get(framework, {}).values())):
            lines.append(f"      n/a: {reason}")
    return [line for line in lines if line is not None]


def _mark(case: str, servers: dict[str, dict[str, bool]], reasons: dict[str, str]) -> str:
    """A case holds where it held under every server that it was tried under."""
    if case in reasons:
        return "n/a"
    held = [tried[case] for tried in servers.values() if case in tried]
    if not held:
        return ""
    return "ok" if all(held) else "NO"


def _counted(tried: dict[str, bool]) -> str:
    held = sum(tried.values())
    return f"{held} held" if held == len(tried) else f"{held} held, {len(tried) - held} FAILED"
