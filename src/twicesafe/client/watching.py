"""An operation as others see it: those who watch (R40), who get each attempt as it ends, and other retry layers.

    watch = Watch(observer=print)
    send(client, intent, watch=watch)

Without a watch nothing is told but what needs a human, and a first attempt carries no more than its number. Key hints
only, no query, no text of an exception.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from twicesafe.client.ambient import Ambient, AsyncAmbient
from twicesafe.core.attempts import Answered, Attempts, Failed, Send
from twicesafe.core.contract import Contract
from twicesafe.core.keys import key_hint
from twicesafe.core.outcome import Attempt, Outcome, Sent, Unknown
from twicesafe.observe import Event, Observer, log_events, log_fault, tell

__all__ = ["Operation", "Trace", "Tracing", "Watch"]

R = TypeVar("R")

# --- what is seen ----------------------------------------------------------------------------------------------------


class Operation:
    """An operation before and while it is sent. What nobody asks for is not made."""

    ambient: Ambient | AsyncAmbient
    method: str
    netloc: str
    path: str
    key: str | None
    contract: Contract
    trail: list[Attempt]
    """The attempts that have ended."""
    limit = 1
    """How many attempts it may have."""

    around: Operation | None = None
    """The operation that this one is an attempt of, where it was met within another layer."""
    over = False
    watch: Watch | None = None
    trace: Trace | None = None
    _operation_id: str | None = None

    @property
    def number(self) -> int:
        """Of the attempt that is under way, or comes next."""
        return len(self.trail) + 1

    @property
    def operation_id(self) -> str:
        """One for all attempts of this operation, which says nothing of its key."""
        if self.around is not None:
            return self.around.operation_id
        self._operation_id = self._operation_id or uuid4().hex
        return self._operation_id

    @property
    def scheme(self) -> str:
        """Of its address."""
        return "https"

    @property
    def address(self) -> str:
        """Host and port, without a user's name and password."""
        return self.netloc.rpartition("@")[2]

    @property
    def plain_path(self) -> str:
        """The path, without a query, and with no more than the hint of a key that stands in it."""
        path = self.path.partition("?")[0].partition("#")[0]
        return path.replace(self.key, key_hint(self.key)) if self.key else path

    def body(self) -> bytes | None:
        """The bytes that each attempt sends; None where they are not in memory."""
        return None

    def event(self, name: str, *, loud: bool = False, attempt: Attempt | None = None) -> Event:
        """Something that happened to it."""
        hint = "" if self.key is None else key_hint(self.key)
        asked = f"{self.method} {self.address}{self.plain_path}"
        return Event(name, asked, hint, loud, attempt=attempt, operation_id=self.operation_id)

    def tell(self, event: Event) -> None:
        """Tell whoever watches, and otherwise the log."""
        tell(log_events if self.watch is None else self.watch.observer, event)


# --- who sees it -----------------------------------------------------------------------------------------------------


class Trace(Protocol):
    """The spans of one operation. What its methods raise is logged, and goes no further."""

    def begins(self, number: int) -> None:
        """An attempt begins."""

    def headers(self) -> Iterable[tuple[str, str]]:
        """What the attempt carries so that its receiver's spans belong to it."""

    def ended(self, attempt: Attempt) -> None:
        """The attempt ended."""

    def over(self, outcome: Outcome[Any] | None, error: BaseException | None) -> None:
        """The operation ended: with an outcome, or by an exception, perhaps within an attempt."""


class Tracing(Protocol):
    """Makes spans. `twicesafe.client.opentelemetry` has one."""

    def begin(self, operation: Operation) -> Trace:
        """An operation begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Who is told, and who traces.

    The observer gets an `Event` named "attempt.ended" for each attempt, with its record, and one at the end:
    "operation.succeeded", "operation.rejected", "operation.unknown", or "operation.left" where an exception ended it.
    It is called in the operation's own task or thread, so it must not block. All attempts then carry the operation's id
    and the greatest number of attempts.
    """

    observer: Observer = log_events
    tracing: Tracing | None = None

    def over(self, decisions: Attempts[R], operation: Operation) -> Attempts[R]:
        """The same decisions, told as they are made."""
        trace = operation.trace = None if self.tracing is None else _begun(self.tracing, operation)
        trail = operation.trail
        outcome: Outcome[R] | None = None
        event: Answered[R] | Failed[R] | float | None = None
        try:
            while True:
                known = len(trail)
                try:
                    step = decisions.send(event)
                except StopIteration as end:
                    outcome = end.value
                for attempt in trail[known:]:
                    operation.tell(operation.event("attempt.ended", attempt=attempt))
                    if trace is not None:
                        trace.ended(attempt)
                if outcome is not None:
                    return outcome
                if trace is not None and isinstance(step, Send):
                    trace.begins(step.number)
                event = yield step
        finally:
            decisions.close()
            if trace is not None:
                trace.over(outcome, None if outcome is not None else _what_ended_it())
            operation.tell(_end(operation, outcome))


def _begun(tracing: Tracing, operation: Operation) -> Trace | None:
    with _harmless():
        return _Harmless(tracing.begin(operation))
    return None


class _Harmless:
    """A trace that cannot keep an operation from its outcome."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def begins(self, number: int) -> None:
        with _harmless():
            self._trace.begins(number)

    def headers(self) -> Iterable[tuple[str, str]]:
        with _harmless():
            return tuple(self._trace.headers())
        return ()

    def ended(self, attempt: Attempt) -> None:
        with _harmless():
            self._trace.ended(attempt)

    def over(self, outcome: Outcome[Any] | None, error: BaseException | None) -> None:
        with _harmless():
            self._trace.over(outcome, error)


@contextmanager
def _harmless() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a tracing's fault is its own
        log_fault("the tracing raised", error)


def _what_ended_it() -> BaseException | None:
    """The exception on whose way out the decisions are closed."""
    closing = sys.exception()
    return closing.__context__ if isinstance(closing, GeneratorExit) else closing


def _end(operation: Operation, outcome: Outcome[Any] | None) -> Event:
    last = operation.trail[-1] if operation.trail else None
    if outcome is None:
        return operation.event("operation.left", attempt=last)
    loud = (
        isinstance(outcome, Unknown)
        and outcome.sent is not Sent.NO
        and operation.contract in (Contract.KEYED, Contract.NEVER)
    )
    return operation.event(f"operation.{type(outcome).__name__.lower()}", loud=loud, attempt=last)
