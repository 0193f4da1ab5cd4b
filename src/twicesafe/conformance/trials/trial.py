"""A trial: a name, what it asks of a target, how many requests it may take, and the function that makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Verdict
from twicesafe.conformance.limits import Limits


class Outcome(NamedTuple):
    """What a trial came to, and what that means for a user."""

    verdict: Verdict
    meaning: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One of the things that are tried."""

    name: str
    title: str
    """What it asks of a target, in one line."""
    requests: int
    """How many it may send at most, those that count effects apart."""
    run: Callable[[Bench], Outcome]
    rounds: int = 0
    """How often it sends as many as may go at the same moment, beside those."""

    def most(self, limits: Limits) -> int:
        """How many requests it may send at most."""
        return self.requests + self.rounds * limits.parallel


def trial(name: str, title: str, requests: int, rounds: int = 0) -> Callable[[Callable[[Bench], Outcome]], Trial]:
    """Make a trial of a function."""

    def make(run: Callable[[Bench], Outcome]) -> Trial:
        return Trial(name, title, requests, run, rounds)

    return make


def passed(meaning: str) -> Outcome:
    """It does what it should."""
    return Outcome(Verdict.PASS, meaning)


def failed(meaning: str) -> Outcome:
    """It does not, and somebody is harmed or misled."""
    return Outcome(Verdict.FAIL, meaning)


def unsupported(meaning: str) -> Outcome:
    """It does not offer this, and does no harm."""
    return Outcome(Verdict.UNSUPPORTED, meaning)


def inconclusive(meaning: str) -> Outcome:
    """Nobody can tell from here."""
    return Outcome(Verdict.INCONCLUSIVE, meaning)
