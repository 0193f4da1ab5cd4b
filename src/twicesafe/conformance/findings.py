"""What a check has found: a report of findings, each with a verdict and the exchanges that show it.

Nothing in here is masked. Whoever shows a report to somebody takes out `Report.secrets` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

Lines = tuple[tuple[str, str], ...]
"""Header lines in their order, with their names as written. Characters stand for bytes, as in ISO 8859-1."""


class Verdict(StrEnum):
    """What a trial comes to."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    UNSUPPORTED = "unsupported"
    """Not offered, and nobody promised it: a marker, say. No harm in it."""
    INCONCLUSIVE = "inconclusive"
    """Nothing was shown: effects cannot be counted, the target says too little of itself, or time was up."""


class Request(NamedTuple):
    """What was sent, or was to be sent."""

    method: str
    url: str
    lines: Lines
    body: bytes

    def values(self, name: str) -> list[str]:
        """The values of all lines of this name."""
        return values(self.lines, name)


class Answer(NamedTuple):
    """What came back, whole."""

    status: int
    lines: Lines
    body: bytes

    @property
    def succeeded(self) -> bool:
        """Whether it says that the work was done."""
        return 200 <= self.status < 300

    def values(self, name: str) -> list[str]:
        """The values of all lines of this name."""
        return values(self.lines, name)

    def value(self, name: str) -> str:
        """The value of the first of them; empty where there is none."""
        return next(iter(self.values(name)), "")


class Exchange(NamedTuple):
    """One request and what became of it."""

    request: Request
    answer: Answer | None
    """None where none came, or none was waited for; `note` says which."""
    began: float
    """Seconds after the beginning of the trial."""
    seconds: float
    """How long it took, up to the last byte of the answer."""
    note: str = ""
    """What a reader has to know beside: `hung up after 20 of 40 bytes`, `the answer was dropped on its way`."""


class Effects(NamedTuple):
    """How often the work was done in a trial, by the target's own count, and how often it was wanted."""

    counted: int
    expected: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What one trial has found."""

    trial: str
    """Its name, as `--only` takes it: `parallel-duplicates`."""
    title: str
    """What the trial asks of a target, in one line."""
    verdict: Verdict
    meaning: str
    """What was seen, and what that means for a user: one or two sentences."""
    evidence: tuple[Exchange, ...] = ()
    """In the order in which they began."""
    effects: Effects | None = None
    """None where they cannot be counted, or the trial did not have to."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """A whole check."""

    target: str
    """Its name, or the request's method and URL."""
    url: str
    profile: str
    """Whose rules it was held to: `ietf`, `stripe`."""
    findings: tuple[Finding, ...]
    """In the order of the trials."""
    seconds: float
    requests: int
    """How many were sent, those that count effects included."""
    version: str = ""
    """Of the checker."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Credentials as they stand in the evidence."""
    began: datetime | None = None
    """When, with its time zone."""
    carrier: str = ""
    """The header or JSON member in which the key stands, where that is not the profile's own."""

    @property
    def effects(self) -> Effects | None:
        """The sums over all trials that counted; None where none did."""
        counted = [finding.effects for finding in self.findings if finding.effects is not None]
        if not counted:
            return None
        return Effects(sum(one.counted for one in counted), sum(one.expected for one in counted))

    @property
    def totals(self) -> Mapping[Verdict, int]:
        """How many findings there are of each verdict, those without any included."""
        return {verdict: sum(one.verdict is verdict for one in self.findings) for verdict in Verdict}

    @property
    def exit_status(self) -> int:
        """0: nothing failed and something was shown; 1: something failed; 2: nothing could be shown at all."""
        totals = self.totals
        if totals[Verdict.FAIL]:
            return 1
        return 0 if totals[Verdict.PASS] else 2


def values(lines: Lines, name: str) -> list[str]:
    """The values of all lines of this name, whatever its case."""
    wanted = name.lower()
    return [value for found, value in lines if found.lower() == wanted]
