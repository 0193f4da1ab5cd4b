"""What is measured: every metric, and what each event adds to it. Who exports the numbers is another module's business.

An event that has no line of its own here still counts in `twicesafe.events`. Attributes never hold a key, an id or a
path; names that the application or its peers make up are `other` once there are too many of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from twicesafe.observe import Event

Attributes: TypeAlias = Mapping[str, str | int | bool]


class Kind(StrEnum):
    """What may be done with a metric's numbers."""

    COUNTER = "counter"
    """They only grow."""
    HISTOGRAM = "histogram"
    GAUGE = "gauge"
    """The last one says how it stands."""


class Metric(NamedTuple):
    """One metric, under the name that OpenTelemetry gets."""

    name: str
    kind: Kind
    unit: str
    says: str
    attributes: tuple[str, ...] = ()


class Measured(NamedTuple):
    """What an event adds to a metric, or how it says that a gauge stands."""

    metric: Metric
    value: float
    attributes: Attributes


OTHER: Final = "other"
"""What stands for the names that are too many."""

_OPERATION: Final = "twicesafe.operation"
_OUTCOME: Final = "twicesafe.outcome"
_EVENT: Final = "twicesafe.event"
_RESULT: Final = "twicesafe.result"
_PART: Final = "twicesafe.part"
_TYPE: Final = "cloudevents.event_type"
_CONSUMER: Final = "messaging.consumer.group.name"
_METHOD: Final = "http.request.method"
_SERVER: Final = "server.address"
_STATUS: Final = "http.response.status_code"
_ERROR: Final = "error.type"
_STOP: Final = "twicesafe.stop"
_RETRY: Final = "twicesafe.retry"

_COUNTER, _HISTOGRAM, _GAUGE = Kind.COUNTER, Kind.HISTOGRAM, Kind.GAUGE

REQUESTS: Final = Metric(
    "twicesafe.requests", _COUNTER, "{request}", "Requests and calls under a key, by what they came to",
    (_OPERATION, _OUTCOME),
)  # fmt: skip
DURATION: Final = Metric(
    "twicesafe.request.duration", _HISTOGRAM, "s", "From the claim to the answer: of first runs, of replays, of others",
    (_OPERATION, _OUTCOME),
)  # fmt: skip
EVENTS: Final = Metric(
    "twicesafe.events", _COUNTER, "{event}", "Events that nothing else counts, and all loud ones, which need a human",
    (_EVENT, _OPERATION, "twicesafe.loud"),
)  # fmt: skip
SETTLED: Final = Metric(
    "twicesafe.outcomes.settled", _COUNTER, "{outcome}", "Unknown outcomes that a reconciler was asked about",
    (_OPERATION, _RESULT),
)  # fmt: skip
UNSETTLED: Final = Metric(
    "twicesafe.outcomes.unsettled", _GAUGE, "{outcome}", "Outcomes that are unknown, as a reconciler's last look found",
)  # fmt: skip
OLDEST_UNSETTLED: Final = Metric(
    "twicesafe.outcomes.oldest", _GAUGE, "s", "How long ago the oldest of them was claimed; 0 where there is none",
)  # fmt: skip
REAPED: Final = Metric(
    "twicesafe.reaper.records", _COUNTER, "{record}", "Records and bodies purged, and stale claims ended", (_RESULT,)
)
MESSAGES: Final = Metric(
    "twicesafe.outbox.messages", _COUNTER, "{message}", "What a relay's tries at messages came to", (_TYPE, _RESULT)
)
PENDING: Final = Metric("twicesafe.outbox.pending", _GAUGE, "{message}", "Messages that wait in the outbox")
LAG: Final = Metric(
    "twicesafe.outbox.lag", _GAUGE, "s", "For how long the oldest message has waited; 0 where none does"
)
PARKED: Final = Metric("twicesafe.outbox.parked", _GAUGE, "{message}", "Dead letters that hold their aggregate")
INBOX: Final = Metric(
    "twicesafe.inbox.messages", _COUNTER, "{message}", "Messages that came in, by whether they were handled",
    (_CONSUMER, _RESULT),
)  # fmt: skip
ROUNDS: Final = Metric("twicesafe.worker.rounds", _COUNTER, "{round}", "Rounds of a worker's parts", (_PART, _RESULT))
ROUND_DURATION: Final = Metric(
    "twicesafe.worker.round.duration", _HISTOGRAM, "s", "How long a round that came to its end took", (_PART,)
)
ATTEMPTS: Final = Metric(
    "twicesafe.client.attempts", _COUNTER, "{attempt}", "A client's attempts; a retry is any after the first",
    (_METHOD, _SERVER, _RETRY, _STATUS, _ERROR, _STOP),
)  # fmt: skip
ATTEMPT_DURATION: Final = Metric(
    "twicesafe.client.attempt.duration", _HISTOGRAM, "s", "How long an attempt of a client's took", (_METHOD, _SERVER)
)
OPERATIONS: Final = Metric(
    "twicesafe.client.operations", _COUNTER, "{operation}", "A client's operations, by their outcome",
    (_METHOD, _SERVER, _OUTCOME, _STOP),
)  # fmt: skip

METRICS: Final = (
    REQUESTS, DURATION, EVENTS, SETTLED, UNSETTLED, OLDEST_UNSETTLED, REAPED, MESSAGES, PENDING, LAG, PARKED, INBOX,
    ROUNDS, ROUND_DURATION, ATTEMPTS, ATTEMPT_DURATION, OPERATIONS,
)  # fmt: skip

OUTCOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "completed": "first_run",
        "released": "released",
        "reopened": "reopened",
        "held": "held",
        "left": "left",
        "replayed": "replay",
        "replayed.without_body": "replay_without_body",
        "conflict": "conflict",
        "mismatch": "mismatch",
        "outcome.unknown": "unknown",
        "refused": "refused",
        "keys.refused": "limited",
    }
)
"""Of a request under a key: each comes to one of these, unless there is no store for it. A loud `outcome.unknown` is
followed by `held`."""

_SIMPLE: Final[Mapping[str, tuple[Metric, str, str]]] = MappingProxyType(
    {
        "reconcile.unclear": (SETTLED, _OPERATION, "unclear"),
        "reconcile.failed": (SETTLED, _OPERATION, "failed"),
        "reaper.purged": (REAPED, "", "purged"),
        "reaper.settled_stale": (REAPED, "", "settled"),
        "message.delivered": (MESSAGES, _TYPE, "delivered"),
        "message.failed": (MESSAGES, _TYPE, "failed"),
        "message.parked": (MESSAGES, _TYPE, "parked"),
        "message.skipped": (MESSAGES, _TYPE, "skipped"),
        "inbox.handled": (INBOX, _CONSUMER, "handled"),
        "inbox.duplicate": (INBOX, _CONSUMER, "duplicate"),
        "worker.round": (ROUNDS, _PART, "done"),
        "worker.failed": (ROUNDS, _PART, "failed"),
    }
)
"""Event -> the counter, the attribute that its operation is, and the result."""

_GAUGES: Final[Mapping[str, tuple[Metric, Metric | None]]] = MappingProxyType(
    {
        "outbox.pending": (PENDING, LAG),
        "outbox.parked": (PARKED, None),
        "outcomes.unsettled": (UNSETTLED, OLDEST_UNSETTLED),
    }
)
"""Event -> what its amount says, and what its seconds say."""

_OF_CLIENTS: Final = "operation."


class Measuring:
    """Makes numbers of events. `names`: how many values an attribute may have that others make up."""

    def __init__(self, names: int) -> None:
        self._most = names
        self._known: dict[tuple[str, str], str] = {}
        self._sizes: dict[str, int] = {}

    def measured(self, event: Event) -> Iterator[Measured]:
        """What this event adds to each metric."""
        name, loud = event.name, event.loud
        if event.operation_id is not None:
            yield from self._of_a_client(event)
            return
        gauges = _GAUGES.get(name)
        if gauges is not None:
            yield Measured(gauges[0], event.amount, _NONE)
            if gauges[1] is not None:
                yield Measured(gauges[1], event.seconds or 0.0, _NONE)
            return
        outcome = OUTCOMES.get(name)
        if outcome is not None and not loud:
            about = {_OPERATION: self.name(_OPERATION, event.operation), _OUTCOME: outcome}
            yield Measured(REQUESTS, 1, about)
            if event.seconds is not None:
                yield Measured(DURATION, event.seconds, about)
            return
        simple = _SIMPLE.get(name)
        if simple is not None:
            metric, attribute, result = simple
            about = {attribute: self.name(attribute, event.operation)} if attribute else {}
            yield Measured(metric, event.amount, {**about, _RESULT: result})
            if name == "worker.round" and event.seconds is not None:
                yield Measured(ROUND_DURATION, event.seconds, about)
        elif name == "outcome.settled":
            result = event.result or "done"
            about = {_OPERATION: self.name(_OPERATION, event.operation), _RESULT: result.replace(" ", "_")}
            yield Measured(SETTLED, 1, about)
        if simple is None or loud:
            operation = self.name(_OPERATION, event.operation)
            yield Measured(EVENTS, 1, {_EVENT: name, _OPERATION: operation, "twicesafe.loud": loud})

    def _of_a_client(self, event: Event) -> Iterator[Measured]:
        method, server = self._asked(event.operation)
        about: dict[str, str | int | bool] = {_METHOD: method, _SERVER: server}
        attempt = event.attempt
        stop = {} if attempt is None or attempt.stop is None else {_STOP: attempt.stop.value.replace(" ", "_")}
        if event.name == "attempt.ended" and attempt is not None:
            came = {} if attempt.status is None else {_STATUS: attempt.status}
            failed = {} if attempt.failure is None else {_ERROR: attempt.failure.value}
            yield Measured(ATTEMPTS, 1, {**about, _RETRY: attempt.number > 1, **came, **failed, **stop})
            yield Measured(ATTEMPT_DURATION, attempt.seconds, about)
        elif event.name.startswith(_OF_CLIENTS):
            yield Measured(OPERATIONS, 1, {**about, _OUTCOME: event.name.removeprefix(_OF_CLIENTS), **stop})
        if event.loud or not event.name.startswith((_OF_CLIENTS, "attempt.")):
            yield Measured(EVENTS, 1, {_EVENT: event.name, _OPERATION: server, "twicesafe.loud": event.loud})

    def _asked(self, operation: str) -> tuple[str, str]:
        """The method, and host and port, of what a client calls its operation: never the path."""
        method, _, address = operation.partition(" ")
        return self.name(_METHOD, method), self.name(_SERVER, address.partition("/")[0])

    def name(self, attribute: str, value: str) -> str:
        """The value as the attribute may have it."""
        known = self._known.get((attribute, value))
        if known is None:
            size = self._sizes.get(attribute, 0)
            if size >= self._most:
                return OTHER
            self._sizes[attribute] = size + 1
            known = self._known[attribute, value] = writable(value)[:LONGEST]
        return known


def writable(name: str) -> str:
    """The name as it can be exported: for one that has no UTF-8, exporters would drop all numbers, or all spans."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


LONGEST: Final = 100
"""Characters of a value. What is longer is cut."""

_NONE: Final[Attributes] = MappingProxyType({})
