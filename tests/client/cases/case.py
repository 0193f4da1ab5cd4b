"""The words in which cases are told. They are the same for every client, in whatever language it is written."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from tests.client.certificates import Certificate
from tests.client.scripted import Act


class Operation(NamedTuple):
    """What is to happen, and what its sender may assume about doing it again."""

    method: str
    contract: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PUT", "PATCH")


CHARGE = Operation("POST", "keyed")
BLIND = Operation("POST", "never")
"""Its server ignores keys."""
PUT = Operation("PUT", "idempotent")
DELETE = Operation("DELETE", "idempotent")
PATCH = Operation("PATCH", "conditional", (("If-Match", '"v1"'),))
GET = Operation("GET", "safe")
SEARCH = Operation("POST", "safe")
"""A POST that changes nothing, as its caller says."""
ERASE = Operation("DELETE", "keyed")


class Limits(NamedTuple):
    """A client's limits in these cases. Times are in seconds, the budget's numbers in retries."""

    attempts: int = 4
    in_progress: int = 30
    deadline: float = 20.0
    attempt_timeout: float = 10.0
    first_delay: float = 0.5
    longest_delay: float = 10.0
    budget: float = 20.0
    remembers: float | None = None
    """For how long the server knows a key; None where nobody knows."""
    overslept: float = 0.0
    """How much longer each wait takes than it was to."""


LIMITS = Limits()
IMPATIENT = LIMITS._replace(attempt_timeout=1.0)
"""For servers that stay silent: where a client's time-outs are its sockets', that time really passes."""


class Trait(StrEnum):
    """What not every client can do."""

    OUTCOME = "returns an outcome, and reads the body of the answer"
    """A transport is through with the head."""
    PROOF = "proves that nothing was sent"
    DISTRUST = "tells a certificate that is not trusted from a connection that breaks"
    REDIRECTS = "follows redirects"
    STREAMS = "takes bodies that can be read once"
    SHOWN = "is shown redirects that it does not follow"
    NUMBERED = "may send the number of an attempt"
    KEPT = "goes on at once by a connection that is kept"
    INTERIM = "lives with an interim answer that it did not ask for"


class Expected(NamedTuple):
    """What is to come of it. `status` None: there is no answer. `sent` is told of what stays unknown."""

    outcome: str
    status: int | None
    stop: str = "answered"
    sent: str = "yes"
    replayed: bool = False


def done(status: int = 201, *, replayed: bool = False) -> Expected:
    """It is done, by this attempt or by an earlier one."""
    return Expected("succeeded", status, replayed=replayed)


def refused(status: int, stop: str = "answered", *, replayed: bool = False) -> Expected:
    """It is not done, and that is certain."""
    return Expected("rejected", status, stop, replayed=replayed)


def unknown(status: int | None = None, stop: str = "answered", *, sent: str = "yes") -> Expected:
    """Nobody can say."""
    return Expected("unknown", status, stop, sent)


ATTEMPTS, BUDGET, DEADLINE, FORGOTTEN = "attempts", "budget", "deadline", "forgotten"
HOPELESS, NOT_REPEATABLE = "hopeless", "not repeatable"


class Otherwise(NamedTuple):
    """What is expected of a client that lacks a trait: the first `acts` are played."""

    acts: int
    hits: int
    expected: Expected


class Case(NamedTuple):
    """One thing that may happen.

    `acts` is what the server does, connection after connection, and all of it has to happen. `hits` is how many
    requests it reads to their end: what a careless server would charge for.
    """

    operation: Operation
    name: str
    acts: Sequence[Act]
    hits: int
    expected: Expected
    why: str
    waits: Sequence[tuple[float, float]] | None = None
    """The bounds of each wait. None: full jitter, from nothing to a window that doubles."""
    limits: Limits = LIMITS
    certificate: Certificate | None = None
    body: str = "json"
    elsewhere: Sequence[Act] | None = None
    """Redirects are followed; and what another origin does, if the server leads there."""
    attempts: int = 0
    """0: as many as acts."""
    needs: Trait | None = None
    otherwise: Otherwise | None = None
    """Without what it `needs`. None: the case has nothing to say about such a client."""

    def by(self, traits: frozenset[Trait]) -> Case | None:
        """This case for a client with these traits, if it is one."""
        if self.needs is None or self.needs in traits:
            return self
        if self.otherwise is None:
            return None
        acts, hits, expected = self.otherwise
        return self._replace(acts=self.acts[:acts], hits=hits, expected=expected)

    @property
    def tries(self) -> int:
        """How many attempts there are."""
        return self.attempts or len(self.acts)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Of each wait."""
        if self.waits is not None:
            return list(self.waits)
        limits = self.limits
        return [(0.0, min(limits.longest_delay, limits.first_delay * 2**n)) for n in range(self.tries - 1)]

    @property
    def takes_time(self) -> bool:
        """Whether time really passes in it."""
        return min(self.limits.attempt_timeout, self.limits.deadline) < 2
