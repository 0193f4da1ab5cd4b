"""Spans by OpenTelemetry's API: one for an operation, and one within it for each attempt.

    send(client, intent, watch=Watch(tracing=Tracing()))

The attempts' spans are of the kind CLIENT and follow the semantic conventions for HTTP clients; a second attempt has
`http.request.resend_count` 1. Each attempt carries its own span's context, by whatever propagators are configured. Of
the address there is neither a query nor a user, and of the key no more than its hint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry import context, propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from twicesafe.client.watching import Operation, Trace
from twicesafe.core.keys import key_hint
from twicesafe.core.outcome import Attempt, Outcome, Rejected, Succeeded, Unknown

__all__ = ["Tracing"]

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})
"""Those that the conventions know. All others are `_OTHER`, so that nobody can make names of their own."""

_PORTS: Final = {"http": 80, "https": 443}


class Tracing:
    """Makes spans with a tracer of `provider`, or of the process's where none is given."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("twicesafe.client", tracer_provider=provider)

    def begin(self, operation: Operation) -> Trace:
        """Begin the span of an operation, below the span that is current."""
        return _Spans(self._tracer, operation)


class _Spans:
    """The span of an operation and, within it, that of the attempt under way, which is current while it lasts."""

    def __init__(self, tracer: trace.Tracer, operation: Operation) -> None:
        method = operation.method if operation.method in _METHODS else "_OTHER"
        self._tracer = tracer
        self._name = "HTTP" if method == "_OTHER" else method
        self._about: dict[str, Any] = {"http.request.method": method, **_place(operation)}
        if method == "_OTHER":
            self._about["http.request.method_original"] = operation.method
        own: dict[str, Any] = {
            "twicesafe.operation_id": operation.operation_id,
            "twicesafe.contract": operation.contract,
        }
        if operation.key is not None:
            own["twicesafe.key_hint"] = key_hint(operation.key)
        self._whole = tracer.start_span(f"twicesafe {self._name}", attributes={**self._about, **own})
        self._around = trace.set_span_in_context(self._whole)
        self._one: trace.Span | None = None
        self._current: Any = None

    def begins(self, number: int) -> None:
        about = self._about if number == 1 else {**self._about, "http.request.resend_count": number - 1}
        self._one = self._tracer.start_span(self._name, self._around, SpanKind.CLIENT, about)
        self._current = context.attach(trace.set_span_in_context(self._one, self._around))

    def headers(self) -> Iterable[tuple[str, str]]:
        carried: dict[str, str] = {}
        propagate.inject(carried)
        return carried.items()

    def ended(self, attempt: Attempt) -> None:
        span = self._one
        if span is None:
            return
        if attempt.status is not None:
            span.set_attribute("http.response.status_code", attempt.status)
        if attempt.failure is not None or (attempt.status or 0) >= 400:
            kind = str(attempt.status) if attempt.failure is None else attempt.failure.value
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR))
        span.set_attributes(_record(attempt))
        self._end(span)

    def over(self, outcome: Outcome[Any] | None, error: BaseException | None) -> None:
        left = None if error is None else type(error).__qualname__
        if self._one is not None:
            self._one.set_attribute("error.type", left or "unknown")
            self._one.set_status(Status(StatusCode.ERROR))
            self._end(self._one)
        whole = self._whole
        if outcome is not None:
            whole.set_attribute("twicesafe.outcome", type(outcome).__name__.lower())
            whole.set_attribute("twicesafe.attempts", len(outcome.attempts))
        if not isinstance(outcome, (Succeeded, Rejected)):
            whole.set_attribute("error.type", left or "unknown")
            whole.set_status(Status(StatusCode.ERROR))
        if isinstance(outcome, (Succeeded, Rejected)):
            whole.set_attribute("twicesafe.replayed", outcome.replayed)
        if isinstance(outcome, (Rejected, Unknown)):
            whole.set_attribute("twicesafe.stop", outcome.stop.value)
        whole.end()

    def _end(self, span: trace.Span) -> None:
        span.end()
        context.detach(self._current)
        self._one = None


def _record(attempt: Attempt) -> dict[str, Any]:
    """What the conventions have no name for."""
    own = {
        "twicesafe.attempt": attempt.number,
        "twicesafe.reason": attempt.reason,
        "twicesafe.sent": attempt.sent.value,
        "twicesafe.deadline_left": attempt.deadline_left,
        "twicesafe.budget_left": attempt.budget_left,
    }
    if attempt.delay is not None:
        own["twicesafe.delay"] = attempt.delay
    if attempt.stop is not None:
        own["twicesafe.stop"] = attempt.stop.value
    return own


def _place(operation: Operation) -> dict[str, Any]:
    """The server, and the address without query, user and key."""
    full = f"{operation.scheme}://{operation.address}{operation.plain_path}"
    parts = urlsplit(full)
    return {
        "server.address": parts.hostname or operation.address,
        "server.port": parts.port or _PORTS.get(operation.scheme, 443),
        "url.full": full,
    }
