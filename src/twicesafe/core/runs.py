"""What all runs of one intent prove together, and whether it may be sent once more (R34, R35, I6).

A run is one call of `send()`, of one or more attempts. Runs of one intent may overlap, in several processes, and may
end without a word, with theirs. Each proves something of itself; what became of the intent follows from all of them,
in whatever order they ended. And what is known never turns worse into better: while one run may have had the effect, a
refusal of another says nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Outcome, Rejected, Sent, Succeeded, Unknown
from twicesafe.core.record import Instant, Micros
from twicesafe.core.remembered import sending_window

R = TypeVar("R")


class Verdict(StrEnum):
    """What one run proved."""

    OPEN = "open"
    """It may have had the effect. What broke off, and what is under way, is open too."""
    UNSENT = "unsent"
    """Not one byte left."""
    NOT_DONE = "not done"
    """It did nothing. Another run may have."""
    REFUSED = "refused"
    """The recorded answer to every attempt: it was not done, and will not be under this key."""
    DONE = "done"


class Run(NamedTuple):
    """One call of `send()`, as it is kept. Times are on the clock of the file's host."""

    began_at: Instant
    process: int
    """Its process's number. Where there is no end it may be at work still."""
    verdict: Verdict = Verdict.OPEN
    ended_at: Instant | None = None
    attempts: int = 0
    """Those that ended, as far as known."""
    status: int | None = None
    """Of the last answer."""
    reason: str = ""
    """What the last attempt was taken to mean, what broke the run off, or what whoever settled it knew."""


class Standing(StrEnum):
    """What became of an intent."""

    RESERVED = "reserved"
    """Nothing was sent, provably."""
    UNKNOWN = "unknown"
    """It may be done. Sending it again settles it."""
    OVERDUE = "overdue"
    """It may be done, and to send it again could do it twice: its server may have forgotten the key by now."""
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"


KNOWN: Final = (Standing.SUCCEEDED, Standing.REJECTED)
"""What became of it is known."""

_MICROSECOND: Final = timedelta(microseconds=1)


class Promise(NamedTuple):
    """What may be assumed about an intent that arrives again."""

    contract: Contract
    remembers: timedelta | None
    """For how long its server knows the key. None where it needs none, or knows none."""

    def may_repeat(self, runs: Iterable[Run], now: Instant) -> bool:
        """Whether what is sent now does no harm, if an earlier run had the effect."""
        first = _first_sent(runs)
        if first is None:
            return True
        if self.contract is Contract.NEVER or (self.contract is Contract.KEYED and self.remembers is None):
            return False
        return self.remembers is None or now < first + self._window(self.remembers)

    def left(self, runs: Iterable[Run], now: Instant) -> Micros | None:
        """For how long from now it may be sent; None for as long as one likes."""
        if self.remembers is None:
            return None
        first = _first_sent(runs)
        return (now if first is None else first) + self._window(self.remembers) - now

    def forgotten(self, runs: Iterable[Run], settled_at: Instant, now: Instant) -> bool:
        """Whether its server has forgotten the key for certain. Where it needs none, from when it was settled."""
        first = _first_sent(runs)
        if first is None or self.remembers is None:
            return now >= settled_at
        return now >= first + self.remembers // _MICROSECOND

    @staticmethod
    def _window(remembers: timedelta) -> Micros:
        return sending_window(remembers) // _MICROSECOND


def _first_sent(runs: Iterable[Run]) -> Instant | None:
    return min((run.began_at for run in runs if run.verdict is not Verdict.UNSENT), default=None)


def standing_of(runs: Sequence[Run], promise: Promise, now: Instant) -> Standing:
    """What became of the intent."""
    verdicts = {run.verdict for run in runs}
    if Verdict.DONE in verdicts:
        return Standing.SUCCEEDED
    if Verdict.REFUSED in verdicts:
        return Standing.REJECTED
    if Verdict.OPEN in verdicts:
        return Standing.UNKNOWN if promise.may_repeat(runs, now) else Standing.OVERDUE
    return Standing.REJECTED if Verdict.NOT_DONE in verdicts else Standing.RESERVED


def may_send(runs: Sequence[Run], promise: Promise, now: Instant) -> bool:
    """Whether to send it, first or again.

    Also where it succeeded, as long as its server knows the key: the answer is the recorded one. Not where it was
    rejected: by now its place may have been taken by another intent, and what was refused then could be accepted.
    """
    standing = standing_of(runs, promise, now)
    if standing is Standing.SUCCEEDED:
        return promise.contract is Contract.KEYED and promise.may_repeat(runs, now)
    return standing in (Standing.RESERVED, Standing.UNKNOWN)


def verdict_of(outcome: Outcome[R]) -> Verdict:
    """What a run proved that ended with this outcome."""
    if isinstance(outcome, Succeeded):
        return Verdict.DONE
    if isinstance(outcome, Rejected):
        return Verdict.REFUSED if outcome.replayed else Verdict.NOT_DONE
    return Verdict.UNSENT if outcome.sent is Sent.NO else Verdict.OPEN


def told(outcome: Outcome[R], others: Iterable[Run]) -> Outcome[R]:
    """The outcome, as it is once the other runs are looked at."""
    verdicts = {run.verdict for run in others}
    if Verdict.REFUSED in verdicts or not verdicts & {Verdict.OPEN, Verdict.DONE}:
        return outcome
    if isinstance(outcome, Rejected) and not outcome.replayed:
        return Unknown(
            key=outcome.key, sent=Sent.YES, attempts=outcome.attempts, stop=outcome.stop, response=outcome.response
        )
    if isinstance(outcome, Unknown) and outcome.sent is Sent.NO:
        return replace(outcome, sent=Sent.MAYBE)
    return outcome
