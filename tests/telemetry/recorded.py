"""OpenTelemetry's own SDK, with nothing behind it but memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from twicesafe.observe import Event
from twicesafe.opentelemetry import Telemetry

Point = NumberDataPoint | HistogramDataPoint


class Recorded:
    """Telemetry, and what it has made of what it was told. `events` are the events themselves."""

    counts = True

    def __init__(self, **how: Any) -> None:
        self.events: list[Event] = []
        self._reader = InMemoryMetricReader()
        self._exporter = InMemorySpanExporter()
        self.meters = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = Telemetry(meters=self.meters, tracers=self.tracers, **how)
        self.around = self.telemetry.around

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self.telemetry(event)

    @property
    def told(self) -> list[str]:
        """The names of the events."""
        return [event.name for event in self.events]

    @property
    def spans(self) -> list[ReadableSpan]:
        """Those that have ended."""
        return list(self._exporter.get_finished_spans())

    def points(self, metric: str) -> list[Point]:
        """What is known of a metric now."""
        found = self._reader.get_metrics_data()
        return [
            point
            for resource in (found.resource_metrics if found is not None else ())
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
        ]

    def numbers(self, metric: str, *attributes: str) -> dict[Any, float]:
        """Sums of a counter's or a gauge's numbers by the values of these attributes, one by its value alone."""
        found: dict[Any, float] = {}
        for point in self.points(metric):
            values = tuple((point.attributes or {}).get(name) for name in attributes)
            value = point.value if isinstance(point, NumberDataPoint) else point.count
            where = values[0] if len(values) == 1 else values
            found[where] = found.get(where, 0) + value
        return found

    @property
    def outcomes(self) -> dict[Any, float]:
        """Requests by their outcome."""
        return self.numbers("twicesafe.requests", "twicesafe.outcome")

    @property
    def text(self) -> str:
        """Everything that would leave the process."""
        metrics = self._reader.get_metrics_data()
        return "".join([span.to_json() for span in self.spans]) + ("" if metrics is None else metrics.to_json())

    def close(self) -> None:
        """Nothing more comes."""
        self.meters.shutdown()
        self.tracers.shutdown()


@contextmanager
def recording(**how: Any) -> Iterator[Recorded]:
    """All that is told within."""
    made = Recorded(**how)
    try:
        yield made
    finally:
        made.close()
