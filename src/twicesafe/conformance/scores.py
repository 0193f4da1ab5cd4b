"""How much of what a profile demands was shown: which trials it requires, leaves open, or does otherwise.

The demands are data, in demands.toml, each with the page that says so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from twicesafe.conformance.findings import Finding, Verdict

EVERY: Final = "every"
"""Whose the demands are that all profiles share."""


class Level(StrEnum):
    """What a profile makes of a trial."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    """Left to the server; good to have all the same."""
    DIFFERENT = "different"
    """It promises something else, which the trial does not ask for. `says` tells what."""


class Source(NamedTuple):
    """A page that says so."""

    name: str
    url: str


class Demand(NamedTuple):
    """What a profile makes of one trial."""

    level: Level
    says: str = ""
    """In the words of a reader of its pages."""
    source: Source | None = None
    """None for what is left open without a word."""
    profile: str = EVERY
    """Whose demand it is."""


class Missing(NamedTuple):
    """A trial that is required and did not pass."""

    trial: str
    verdict: Verdict | None
    """None: it was not made."""


@dataclass(frozen=True, slots=True)
class Score:
    """The share of what is required that passed."""

    profile: str
    required: int
    passed: int
    missing: tuple[Missing, ...]
    """In the order of the trials."""

    @property
    def percent(self) -> int:
        """Of 100; 100 only where nothing is missing."""
        return 100 * self.passed // self.required if self.required else 0


@cache
def demands(profile: str) -> Mapping[str, Demand]:
    """What a profile makes of each trial, by its name. Of a profile that is not in the file: what all demand."""
    return _of(EVERY) | (_of(profile) if profile in _table() else {})


def harm(trial: str) -> str:
    """What it means for a user where a target fails a trial."""
    return str(_table()[EVERY]["trials"][trial]["means"])


def needs(trial: str) -> str:
    """The table of a target's description that a trial needs; empty where the request is enough."""
    return str(_table()[EVERY]["trials"][trial].get("needs", ""))


def score(profile: str, findings: Iterable[Finding]) -> Score:
    """The score of these findings.

    What was not tried is missing, as what failed is. What the target does not offer is only missing where the profile
    itself asks for it.
    """
    verdicts = {finding.trial: finding.verdict for finding in findings}
    required = [
        trial
        for trial, demand in demands(profile).items()
        if demand.level is Level.REQUIRED
        and not (demand.profile == EVERY and verdicts.get(trial) is Verdict.UNSUPPORTED)
    ]
    missing = [Missing(trial, verdicts.get(trial)) for trial in required if verdicts.get(trial) is not Verdict.PASS]
    return Score(profile, len(required), len(required) - len(missing), tuple(missing))


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(files("twicesafe.conformance").joinpath("demands.toml").read_text(encoding="utf-8"))


def _of(profile: str) -> dict[str, Demand]:
    row = _table()[profile]
    sources: Mapping[str, str] = row["sources"]
    made = {}
    for trial, said in row.get("trials", {}).items():
        level, says = Level(said["is"]), said.get("says", "")
        name = said.get("from", next(iter(sources)))
        source = Source(name, sources[name]) if says or level is not Level.OPTIONAL else None
        made[trial] = Demand(level, says, source, profile)
    return made
