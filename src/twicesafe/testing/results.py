"""What became of each check, and the table of stores and checks that shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "FAILED"
    NOT_APPLICABLE = "n/a"
    """The store does not claim to have what the check is about; the reason says what that is."""


class CheckResult(NamedTuple):
    """One check on one fresh store. `cites` are the invariants and faults it is about."""

    name: str
    cites: str
    outcome: Outcome
    reason: str = ""

    @property
    def passed(self) -> bool:
        return self.outcome is not Outcome.FAILED


class CheckFailedError(AssertionError):
    """A store broke its promise. The message says which, and how it showed."""


class StoreCheckError(AssertionError):
    """At least one check failed; the message is the table of all of them."""

    def __init__(self, results: Sequence[CheckResult]) -> None:
        self.results = results
        failed = sum(1 for result in results if not result.passed)
        super().__init__(f"{failed} of {len(results)} checks failed\n\n{result_table({'store': results})}")


_MARKS: Final = {Outcome.PASSED: "ok", Outcome.FAILED: "FAILED", Outcome.NOT_APPLICABLE: "-"}


def result_table(results: Mapping[str, Sequence[CheckResult]]) -> str:
    """A table with a line per check and a column per store, and below it the reasons of whatever is not ok."""
    lines: dict[str, tuple[str, dict[str, CheckResult]]] = {}
    for store, column in results.items():
        for result in column:
            lines.setdefault(result.name, (result.cites, {}))[1][store] = result
    width = max([len(name) for name in lines] + [5])
    cited = max([len(cites) for cites, _ in lines.values()] + [5])
    head = [f"{'check':<{width}}  {'about':<{cited}}"]
    body = []
    for name, (cites, cells) in lines.items():
        marks = [_MARKS[cells[store].outcome] if store in cells else "" for store in results]
        columns = "  ".join(f"{mark:<{max(len(store), 6)}}" for mark, store in zip(marks, results, strict=True))
        body.append(f"{name:<{width}}  {cites:<{cited}}  {columns}".rstrip())
    head.append("  ".join(f"{store:<{max(len(store), 6)}}" for store in results))
    reasons = [
        f"FAILED  {store}: {result.name}: {result.reason}"
        for store, column in results.items()
        for result in column
        if not result.passed
    ]
    reasons += sorted(
        {
            f"-       {store}: {result.reason}"
            for store, column in results.items()
            for result in column
            if result.outcome is Outcome.NOT_APPLICABLE
        }
    )
    return "\n".join(["  ".join(head).rstrip(), *body, *([""] if reasons else []), *reasons])
