"""What became of an operation, and of each attempt at it (R35, R40)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from twicesafe.core.keys import key_hint
from twicesafe.errors import RejectedError, UnknownError

R = TypeVar("R")
"""The HTTP library's response."""


class Sent(StrEnum):
    """How far a request got, as the transport proves it."""

    NO = "no"
    """Not one byte of it left: nothing can have happened."""
    MAYBE = "maybe"
    """The transport cannot tell."""
    YES = "yes"
    """It began to leave: the server may have it."""


class FailureKind(StrEnum):
    """Why an attempt ended without a whole answer."""

    CONNECT = "connect"
    """No connection came about."""
    TIMEOUT = "timeout"
    DROPPED = "dropped"
    """The connection ended early."""
    GARBLED = "garbled"
    """What came back is no HTTP, or cannot be decoded."""
    UNTRUSTED = "untrusted"
    """The server's certificate was refused. Trying again changes nothing."""


class Stop(StrEnum):
    """Why there was no further attempt."""

    ANSWERED = "answered"
    """The answer is final."""
    NOT_REPEATABLE = "not repeatable"
    """A second time could do it twice."""
    HOPELESS = "hopeless"
    """The failure is not one that passes."""
    ATTEMPTS = "attempts"
    """All attempts are used up."""
    DEADLINE = "deadline"
    """The next wait would not fit."""
    BUDGET = "budget"
    """This host's retry budget is spent."""
    CIRCUIT = "circuit open"
    """This host's circuit breaker let nothing through."""
    FORGOTTEN = "forgotten"
    """By then the server may have forgotten the key: a further attempt could do it twice."""


class Attempt(NamedTuple):
    """The record of one attempt. Durations are in seconds; `began` counts from the start of the operation."""

    number: int
    began: float
    seconds: float
    sent: Sent
    status: int | None
    failure: FailureKind | None
    reason: str
    """What the answer or the failure was taken to mean."""
    delay: float | None
    """The wait before the next attempt; None after the last."""
    stop: Stop | None
    deadline_left: float
    budget_left: float


class Report(NamedTuple):
    """What is known of an operation at any moment: its key, and the attempts that have ended."""

    key: str | None
    attempts: tuple[Attempt, ...]

    def __repr__(self) -> str:
        return f"Report(key={_hint(self.key)!r}, attempts={len(self.attempts)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded(Generic[R]):
    """It is done, and `response` says how. `replayed`: an earlier attempt did it."""

    response: R
    key: str | None = field(repr=False)
    attempts: tuple[Attempt, ...] = field(repr=False)
    replayed: bool = False

    def raise_for_outcome(self) -> R:
        """The response."""
        return self.response


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Generic[R]):
    """It is not done, and `response` says why. `replayed`: that is the recorded answer to every attempt."""

    response: R
    key: str | None = field(repr=False)
    attempts: tuple[Attempt, ...] = field(repr=False)
    replayed: bool = False
    stop: Stop = Stop.ANSWERED

    def raise_for_outcome(self) -> R:
        """RejectedError."""
        raise RejectedError(f"the operation was rejected: {self.attempts[-1].reason}", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Generic[R]):
    """Nobody can say whether it is done (I6); with `sent` NO it is not. Asking again with `key` settles it.

    Unless the server answers that the key was used for another request: then only that request's bytes settle it, and
    a new key could do it twice.

    `response` is the last answer, if one came that settled nothing; its body may be missing where `error` is set.
    `error` is what the HTTP library raised last, or the circuit breaker that let nothing through: `attempts` is empty
    then.
    """

    key: str | None = field(repr=False)
    sent: Sent
    attempts: tuple[Attempt, ...] = field(repr=False)
    stop: Stop
    response: R | None = None
    error: BaseException | None = None

    def raise_for_outcome(self) -> R:
        """UnknownError, from the HTTP library's own error where there is one."""
        what = "it was never sent" if self.sent is Sent.NO else "ask again with the same key and the same bytes"
        last = self.attempts[-1].reason if self.attempts else self.stop
        raise UnknownError(f"the outcome of the operation is unknown ({last}): {what}", self) from self.error


Outcome: TypeAlias = Succeeded[R] | Rejected[R] | Unknown[R]
"""`match` on it; `raise_for_outcome()` where anything but success is an exception."""


def _hint(key: str | None) -> str | None:
    return None if key is None else key_hint(key)
