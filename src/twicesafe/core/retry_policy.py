"""How long and how often a client tries. Every default argues for itself; a wrong setting is refused at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from twicesafe.core.retry_budget import Work
from twicesafe.core.routes import Routes, Terms, check_header
from twicesafe.errors import ConfigurationError

DEFAULT_ATTEMPTS: Final = 4
"""Three retries over some seconds ride out a restart, a failover or a lost packet. What lasts longer is an outage."""

DEFAULT_IN_PROGRESS: Final = 30
"""An answer "in progress" is not a failure: the first attempt is at work. It is waited out up to the deadline, and this
many times at most."""

DEFAULT_DEADLINE: Final = timedelta(seconds=30)
"""As long as twicesafe's default lease: a server process that died with the claim is replaced within one call."""

DEFAULT_ATTEMPT_TIMEOUT: Final = timedelta(seconds=10)
"""A third of the deadline, so that one silent server leaves time for two more attempts."""

DEFAULT_FIRST_DELAY: Final = timedelta(milliseconds=500)
DEFAULT_LONGEST_DELAY: Final = timedelta(seconds=10)

DEFAULT_BODY_LIMIT: Final = 10 * 1024 * 1024
"""A body has to be held in memory to be sent twice."""

SHORTEST_ATTEMPT: Final = 0.05
"""Seconds. With less than a round trip left, a further attempt would only make a known outcome unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of one operation's attempts, all of them in force at once.

    `attempts` bounds how often it is sent, answers "in progress" not counted, which `in_progress` bounds. `deadline`
    bounds the whole call, waits included, and clips every attempt. `attempt_timeout` bounds one attempt; None leaves
    that to the HTTP client's own time-outs. The first delay is drawn from 0 to `first_delay`, and each further one from
    a window twice as wide, up to `longest_delay`. `work` names the retry budget. `header` carries the key.
    `routes` says what is known of servers' operations, by method and path.
    With `leave_to_caller` an operation has one attempt while a request is served whose caller retries.
    """

    attempts: int = DEFAULT_ATTEMPTS
    in_progress: int = DEFAULT_IN_PROGRESS
    deadline: timedelta = DEFAULT_DEADLINE
    attempt_timeout: timedelta | None = DEFAULT_ATTEMPT_TIMEOUT
    first_delay: timedelta = DEFAULT_FIRST_DELAY
    longest_delay: timedelta = DEFAULT_LONGEST_DELAY
    work: Work = Work.INTERACTIVE
    header: str = "Idempotency-Key"
    body_limit: int = DEFAULT_BODY_LIMIT
    routes: Routes | None = None
    leave_to_caller: bool = False

    deadline_s: float = field(init=False, repr=False, compare=False)
    attempt_s: float = field(init=False, repr=False, compare=False)
    _plain: Terms = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        write = object.__setattr__
        for name, least in (("attempts", 1), ("in_progress", 0), ("body_limit", 0)):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < least:
                raise ConfigurationError(f"{name} must be a whole number of {least} or more, not {number!r}")
        for name in ("deadline", "first_delay", "longest_delay"):
            _check_positive(name, getattr(self, name))
        if self.attempt_timeout is not None:
            _check_positive("attempt_timeout", self.attempt_timeout)
        try:
            write(self, "work", Work(self.work))
        except ValueError:
            raise ConfigurationError(f"work must be one of {', '.join(Work)}, not {self.work!r}") from None
        if self.routes is not None and not isinstance(self.routes, Routes):
            raise ConfigurationError(f"routes must be Routes(...), not {self.routes!r}")
        check_header(self.header)
        write(self, "deadline_s", self.deadline.total_seconds())
        limit = self.deadline if self.attempt_timeout is None else self.attempt_timeout
        write(self, "attempt_s", limit.total_seconds())
        write(self, "_plain", Terms.of_header(self.header))

    def but(self, **changes: Any) -> RetryPolicy:
        """This policy with some settings changed; checked again."""
        return replace(self, **changes)

    @property
    def header_name(self) -> bytes:
        """The header that carries the key where no route says otherwise, in lower case."""
        return self._plain.header_name

    def terms_of(self, method: str, netloc: str, path: str) -> Terms:
        """What holds for a request; `path` may have its query."""
        route = None if self.routes is None else self.routes.find(method, netloc, path)
        return self._plain if route is None else route.terms(method, self.header)

    def window(self, failures: int) -> float:
        """Seconds from 0 to which the delay after the nth failure is drawn: capped before drawing, so that the jitter
        stays full however often it failed."""
        longest = self.longest_delay.total_seconds()
        return min(longest, self.first_delay.total_seconds() * 2.0 ** min(failures - 1, 64))


def _check_positive(name: str, value: object) -> None:
    # None and 0 must never come to mean "at once" or "for ever".
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ConfigurationError(f"{name} must be a timedelta above 0, not {value!r}")
