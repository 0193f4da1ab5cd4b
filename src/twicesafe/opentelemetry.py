"""Metrics and traces of servers, workers and clients, by OpenTelemetry's API: one observer for all of them.

    telemetry = Telemetry()
    app.add_middleware(IdempotencyMiddleware, store=store, scope=user, observer=telemetry)
    relay = Relay(store, publisher, observer=telemetry)
    outbox = Outbox("/orders", carried=carried)

Where no SDK is installed nothing is kept. Spans of requests are whoever's who serves them: what became of the key is
written on the current one. Of a key there is never more than its hint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from twicesafe.core.message import Message
from twicesafe.observe import Event, Work
from twicesafe.telemetry import (
    DURATION,
    METRICS,
    OTHER,
    OUTCOMES,
    REQUESTS,
    Attributes,
    Kind,
    Measuring,
    Metric,
    writable,
)

__all__ = ["Telemetry", "carried", "context_of"]

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: a replay takes one or two milliseconds, a call to a provider seconds."""

FRESH: Final = 180.0
"""Seconds for which a gauge says how it stands. Then whoever looks has died, and nobody knows."""

NAMES: Final = 200
"""Operations, message types, consumers or hosts that are told apart."""

LONGEST_STATE: Final = 512
"""Characters: what W3C Trace Context asks everybody to carry."""

_W3C: Final = TraceContextTextMapPropagator()


class Telemetry:
    """An observer that counts, measures and traces. Make one for a process; safe to share between threads.

    `meters` and `tracers` are the process's where they are not given. `names`: how many operations, and how many
    message types, consumers and hosts, are told apart; further ones are counted as `other`. `clock` counts seconds.
    """

    counts = True

    def __init__(
        self,
        *,
        meters: MeterProvider | None = None,
        tracers: TracerProvider | None = None,
        names: int = NAMES,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        meter = metrics.get_meter("twicesafe", meter_provider=meters)
        self._tracer = trace.get_tracer("twicesafe", tracer_provider=tracers)
        self._measuring = Measuring(names)
        self._clock = clock
        self._stands: dict[str, tuple[float, float]] = {}
        """How a gauge stands, and when that was said."""
        self._records: dict[str, Callable[[float, Attributes], object]] = {
            metric.name: self._instrument(meter, metric) for metric in METRICS
        }
        self._count, self._time = self._records[REQUESTS.name], self._records[DURATION.name]
        self._requests: dict[tuple[str, str], Attributes] = {}
        """What requests that came to this are told apart by."""

    def __call__(self, event: Event) -> None:
        """Take notice of an event."""
        request = event.name, event.operation
        about = self._requests.get(request)
        if about is not None and not event.loud:
            # As below; not by it, because most events are these.
            self._count(1, about)
            if event.seconds is not None:
                self._time(event.seconds, about)
        else:
            records = self._records
            for metric, value, attributes in self._measuring.measured(event):
                records[metric.name](value, attributes)
                if metric is REQUESTS and OTHER not in attributes.values():
                    self._requests[request] = attributes
        if event.operation and event.operation_id is None:
            span = trace.get_current_span()
            if span.is_recording():
                _mark(span, event)

    @contextmanager
    def around(self, work: Work) -> Iterator[None]:
        """A span around something that is done without a request.

        That of a single message is within the trace that the message was made in; that of several links to theirs.
        """
        messages = work.messages
        made = [context_of(message) for message in messages]
        within = made[0] if len(made) == 1 and trace.get_current_span(made[0]).get_span_context().is_valid else None
        links = () if within is not None else _links(made)
        with self._tracer.start_as_current_span(
            f"{work.kind} {work.operation}".rstrip(),
            context=within,
            kind=SpanKind.PRODUCER if messages else SpanKind.INTERNAL,
            attributes=_about(work),
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                # Its text may hold what nobody is to see.
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
                raise

    def _instrument(self, meter: metrics.Meter, metric: Metric) -> Callable[[float, Attributes], object]:
        if metric.kind is Kind.COUNTER:
            return meter.create_counter(metric.name, metric.unit, metric.says).add
        if metric.kind is Kind.HISTOGRAM:
            return meter.create_histogram(
                metric.name, metric.unit, metric.says, explicit_bucket_boundaries_advisory=BUCKETS
            ).record
        meter.create_observable_gauge(metric.name, [partial(self._look, metric.name)], metric.unit, metric.says)
        return partial(self._stand, metric.name)

    def _stand(self, name: str, value: float, _: Attributes) -> None:
        self._stands[name] = value, self._clock()

    def _look(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        value, at = self._stands.get(name, (0.0, -FRESH))
        return [Observation(value)] if self._clock() - at < FRESH else []


def carried() -> dict[str, str]:
    """The current trace, as CloudEvents' extension for distributed tracing says it: for `Outbox(carried=carried)`.

    Empty where nothing is traced. A `tracestate` that is too long is left out: no message is refused for what may be a
    stranger's.
    """
    found: dict[str, str] = {}
    _W3C.inject(found)
    return {name: value for name, value in found.items() if 0 < len(value) <= LONGEST_STATE}


def context_of(message: Message) -> Context:
    """The context that a message was made in: for a consumer's span to be within, or to link to."""
    return _W3C.extract(dict(message.headers), Context())


def _links(made: Iterable[Context]) -> tuple[Link, ...]:
    found = [trace.get_current_span(context).get_span_context() for context in made]
    return tuple([Link(context) for context in found if context.is_valid])


def _about(work: Work) -> dict[str, Any]:
    if not work.messages:
        return {"twicesafe.operation": work.operation, "twicesafe.key_hint": work.key_hint}
    about: dict[str, Any] = {"messaging.operation.name": "publish", "messaging.operation.type": "send"}
    if len(work.messages) > 1:
        return {**about, "messaging.batch.message_count": len(work.messages)}
    message = work.messages[0]
    return {
        **about,
        "cloudevents.event_id": message.id,
        "cloudevents.event_source": message.source,
        "cloudevents.event_type": message.type,
    }


def _mark(span: Span, event: Event) -> None:
    about: dict[str, Any] = {"twicesafe.operation": writable(event.operation)}
    if event.key_hint:
        about["twicesafe.key_hint"] = event.key_hint
    if event.number is not None:
        about["twicesafe.attempt"] = event.number
    outcome = OUTCOMES.get(event.name)
    if outcome is not None and not event.loud:
        span.set_attributes({**about, "twicesafe.outcome": outcome})
        return
    if event.error is not None:
        about["error.type"] = type(event.error).__qualname__
    span.add_event(f"twicesafe.{event.name}", about)
