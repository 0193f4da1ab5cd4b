"""The table of stores and checks at the end of a run: what came of each check of the contract on each store.

What `check_store` returns is noted on the test that asked for it, as one of the test's properties: these find their way
from xdist's workers too. The table is shown where some store went through at least half of the checks.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import pytest

from twicesafe import testing
from twicesafe.testing import CHECKS, CheckResult, Outcome

PROPERTY = "check of the contract"
MARKS = {Outcome.PASSED: "ok", Outcome.FAILED: "NO", Outcome.NOT_APPLICABLE: "-"}

_running: list[pytest.Item] = []
_check_store = testing.check_store


def check_store(*arguments: Any, **named: Any) -> list[CheckResult]:
    """twicesafe.testing's, whose results are noted."""
    results = _check_store(*arguments, **named)
    for item in _running:
        store = store_of(item)
        item.user_properties += [(PROPERTY, [store, result.name, result.outcome.value]) for result in results]
    return results


# Test modules are imported after this one.
testing.check_store = check_store


def store_of(item: pytest.Item) -> str:
    """What a test is about: the subject of its name, and its parameters but for the check."""
    name = getattr(item, "originalname", item.name)
    subject = re.sub(r"^test_|_keeps?_(its|their)_promises.*$", "", name).replace("_", " ")
    callspec = getattr(item, "callspec", None)
    parameters = (
        [part for part in callspec.id.split("-") if part not in {check.name for check in CHECKS}] if callspec else []
    )
    told = ", ".join(parameters)
    if not told or subject in told:
        return told or subject
    return f"{subject}, {told}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Say which test is running."""
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.remove(item)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show the table, once, where the reports come together."""
    columns: dict[str, dict[str, str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY and getattr(report, "when", "") == "call":
                    store, check, outcome = value
                    columns.setdefault(store, {})[check] = MARKS[Outcome(outcome)]
    if any(2 * len(column) >= len(CHECKS) for column in columns.values()):
        terminalreporter.section("the contract, by store and check")
        for line in table(columns):
            terminalreporter.write_line(line)


def table(columns: dict[str, dict[str, str]]) -> list[str]:
    """A line for each check, a numbered column for each store, and which number is which."""
    stores = sorted(columns)
    width = max(len(check.name) for check in CHECKS)
    lines = [" " * width + "".join([f"{number:>4}" for number in range(1, len(stores) + 1)])]
    for check in CHECKS:
        marks = [columns[store].get(check.name, "") for store in stores]
        lines.append((f"{check.name:<{width}}" + "".join([f"{mark:>4}" for mark in marks])).rstrip())
    lines += ["", *[f"{number:>4}  {store}: {_counted(columns[store])}" for number, store in enumerate(stores, 1)]]
    return lines


def _counted(column: dict[str, str]) -> str:
    told = {"ok": "passed", "NO": "FAILED", "-": "not applicable"}
    marks = list(column.values())
    return ", ".join([f"{marks.count(mark)} {words}" for mark, words in told.items() if mark in marks])
