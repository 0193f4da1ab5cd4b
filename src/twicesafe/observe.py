"""What happened, for the people who run it. Key hints only: never a key, a body or a stored answer (R22, R44)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from traceback import format_tb
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeAlias

from twicesafe.core.message import Message
from twicesafe.core.outcome import Attempt
from twicesafe.errors import TwicesafeError

__all__ = ["COUNTED", "Event", "Observer", "Observers", "Work", "fields", "log_events", "tell", "told_of"]

_log: Final = logging.getLogger("twicesafe")


class Event(NamedTuple):
    """One thing worth counting. `loud` ones need a human: work may be done without a record of it."""

    name: str
    operation: str
    key_hint: str
    loud: bool
    error: BaseException | None = None
    """What was met, where that is why. A StoreError's own text holds no password and no values; its `__cause__`, the
    driver's error, may hold values of yours, and so may errors of other classes. `told_of` says what may be logged."""
    attempt: Attempt | None = None
    """Of a client's operation: the attempt that ended; at the operation's end its last."""
    operation_id: str | None = None
    """Of a client's operation: the same for all its attempts, and on their requests."""
    amount: int = 1
    """How many it is: records, messages."""
    seconds: float | None = None
    """What it took, or for how long it has lasted. Of a request from its claim to its answer, for observers that
    count."""
    result: str | None = None
    """What it came to, where one name stands for several things."""
    number: int | None = None
    """Of a request: which attempt its client says it is, for observers that count."""


Observer: TypeAlias = Callable[[Event], None]
"""Called in the request's own task, so it must not block. What it raises is logged and goes no further.

One that counts has an attribute `counts` that is true when it is handed in. It is told of what is COUNTED as well, and
of how long things took. One that traces has a method `around` that gives a context manager for a `Work`.
"""

COUNTED: Final = frozenset(
    {
        "completed",
        "held",
        "inbox.handled",
        "left",
        "message.delivered",
        "outbox.parked",
        "outbox.pending",
        "outcomes.unsettled",
        "reaper.purged",
        "reconcile.unclear",
        "refused",
        "released",
        "reopened",
        "worker.round",
    }
)
"""What goes as it should, and far too often to be told to anybody but those who count."""


def counts(observer: Observer) -> bool:
    """Whether it is told of what is COUNTED."""
    return bool(getattr(observer, "counts", False))


class Observers:
    """Several observers as one. Each is told what it would be told alone, whatever the others raise."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = [(observer, counts(observer)) for observer in observers]
        self.counts = any(counting for _, counting in self._observers)

    def __call__(self, event: Event) -> None:
        """Tell all of them."""
        for observer, counting in self._observers:
            if counting or event.name not in COUNTED:
                tell(observer, event)

    @contextmanager
    def around(self, work: Work) -> Iterator[None]:
        """What all of them put around it."""
        with ExitStack() as stack:
            for observer, _ in self._observers:
                stack.enter_context(around(observer, work))
            yield


def log_events(event: Event) -> None:
    """The observer used where none is given: loud events as errors, the rest at debug level.

    Of an error of this package the text is logged, of any other its class and where it was raised; no traceback, which
    would print texts and causes that may hold values. What an event holds is on the log's
    record too, under the names that `fields` gives it: for formatters that write JSON, and for filters.
    """
    level = logging.ERROR if event.loud else logging.DEBUG
    if _log.isEnabledFor(level):
        why = "" if event.error is None else f": {told_of(event.error)}"
        if event.operation_id is not None:
            why = f" id={event.operation_id}{_told(event.attempt)}{why}"
        _log.log(
            level,
            "twicesafe.%s operation=%s key=%s%s",
            event.name,
            event.operation,
            event.key_hint,
            why,
            extra={f"twicesafe_{name}": value for name, value in fields(event).items()},
        )


def told_of(error: BaseException) -> str:
    """What a log may say of an error. What is not this package's own may repeat a body, a key or a password."""
    kind = type(error).__name__
    if isinstance(error, TwicesafeError):
        return f"{kind}: {error}"
    frames = error.__traceback__
    if frames is None:
        return kind
    while frames.tb_next is not None:
        frames = frames.tb_next
    code = frames.tb_frame.f_code
    return f"{kind} in {code.co_qualname} ({code.co_filename}:{frames.tb_lineno})"


def fields(event: Event) -> dict[str, Any]:
    """What the event holds, by name, without what it does not hold: for structured logs. All of it may be shown."""
    found: dict[str, Any] = {"event": event.name, "operation": event.operation, "loud": event.loud}
    if event.key_hint:
        found["key_hint"] = event.key_hint
    if event.error is not None:
        found |= {"error": type(event.error).__name__, "error_text": told_of(event.error)}
    for name in ("operation_id", "seconds", "result", "number"):
        value = getattr(event, name)
        if value is not None:
            found[name] = value
    if event.amount != 1:
        found["amount"] = event.amount
    attempt = event.attempt
    if attempt is not None:
        found |= {
            "attempt": attempt.number,
            "reason": attempt.reason,
            "sent": attempt.sent.value,
            "seconds": attempt.seconds,
        }
        found |= {} if attempt.stop is None else {"stop": attempt.stop.value}
    return found


def _told(attempt: Attempt | None) -> str:
    if attempt is None:
        return ""
    after = f"stop={attempt.stop}" if attempt.delay is None else f"delay={attempt.delay:.3f}"
    return (
        f" attempt={attempt.number} reason={attempt.reason!r} sent={attempt.sent} seconds={attempt.seconds:.3f} "
        f"{after} deadline_left={attempt.deadline_left:.3f} budget_left={attempt.budget_left:.1f}"
    )


def tell(observer: Observer, event: Event) -> None:
    """Tell `observer`. Nothing that an observer does may change what happens to a request."""
    try:
        observer(event)
    except Exception as error:  # noqa: BLE001 - an observer's fault is its own
        log_fault(f"the observer raised on twicesafe.{event.name}", error)


def log_fault(what: str, error: BaseException) -> None:
    """Log an error that goes no further: its class and the way to it.

    Not its text, nor what it came of: it may have been raised while another error was handled, which holds values.
    """
    _log.error("%s: %s\n%s", what, type(error).__name__, "".join(format_tb(error.__traceback__)))


# --- what workers do -------------------------------------------------------------------------------------------------


class Work(NamedTuple):
    """Something that is done without a request, for whoever traces it."""

    kind: str
    """`resume`, `reconcile` or `publish`."""
    operation: str
    """Of messages their type; empty where there are several."""
    key_hint: str
    messages: tuple[Message, ...] = ()
    """What is published: to one receiver, at one time."""


def traces(observer: Observer) -> bool:
    """Whether it wants anything around a piece of work."""
    return hasattr(observer, "around")


def around(observer: Observer, work: Work) -> AbstractContextManager[object]:
    """What the observer wants around this work. Nothing that it does may change what comes of the work."""
    made = getattr(observer, "around", None)
    return _NOTHING if made is None else _Harmless(made, work)


_NOTHING: Final = nullcontext()


class _Harmless:
    """A context that neither fails nor hides a failure."""

    def __init__(self, made: Callable[[Work], AbstractContextManager[object]], work: Work) -> None:
        self._made = made
        self._work = work
        self._within: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            within = self._made(self._work)
            within.__enter__()
        except Exception as error:  # noqa: BLE001 - an observer's fault is its own
            log_fault(f"the observer raised around a {self._work.kind}", error)
        else:
            self._within = within

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._within is None:
            return
        try:
            self._within.__exit__(kind, error, trace)
        except BaseException as raised:
            if raised is not error:
                if not isinstance(raised, Exception):
                    raise
                log_fault(f"the observer raised around a {self._work.kind}", raised)
