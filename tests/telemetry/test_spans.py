"""Spans of what is done without a request, and the way of a trace through a message."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tests.telemetry.recorded import Recorded
from tests.telemetry.test_workers import Many, Receiver, add, relay, shop
from twicesafe.core.policy import Policy
from twicesafe.errors import RefusedError
from twicesafe.observe import Event, Observers, Work, around, log_events
from twicesafe.once import AsyncOnce, Once, current
from twicesafe.opentelemetry import carried, context_of
from twicesafe.outbox import AsyncOutbox, Message, Outbox, ce_headers
from twicesafe.reconcile import AsyncReconcilers, Reconcilers, Unclear
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import ManualClock

__all__ = ["shop"]


class BrokenError(Exception):
    """A provider's."""


def resumable(once: Any, failing: list[Exception]) -> Any:
    """An operation that breaks off for as long as there is something to fail with."""

    @once.operation(key=lambda order: f"order-0123456789-{order}", name="buy", effects="resumable")
    def buy(order: str) -> str:
        return current().call("charge", lambda key: _charge(failing), remembers=None, unsent=(BrokenError,))

    return buy


def _charge(failing: list[Exception]) -> str:
    if failing:
        raise failing.pop()
    return "ch_1"


def test_a_workers_resume_is_a_span(recorded: Recorded, shop: Path) -> None:
    """R24, R44: a span around each operation that a worker goes on with, with its hint; a failure's class, no text."""
    clock = ManualClock()
    with closing(SqliteStore(shop, clock=clock)) as store:
        failing: list[Exception] = [BrokenError("secret"), BrokenError("secret")]
        buy = resumable(once := Once(store, scope="shop", observer=recorded), failing)
        with pytest.raises(BrokenError):
            buy("o-17")
        for _ in range(2):
            clock.advance(timedelta(hours=1))
            once.resume()
    assert [span.name for span in recorded.spans] == ["resume buy"] * 2
    failed, done = recorded.spans
    assert (failed.status.status_code, done.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert dict(failed.attributes or {})["error.type"] == "BrokenError"
    assert dict(done.attributes or {})["twicesafe.key_hint"] == "…o-17"
    assert dict(done.attributes or {})["twicesafe.outcome"] == "first_run"
    assert "secret" not in recorded.text and "0123456789" not in recorded.text


def test_a_question_to_a_reconciler_is_a_span(recorded: Recorded) -> None:
    """R26, R44: whoever asks a provider does so within a span, blocking or not; a failure is told by its class."""
    asked: list[bool] = []

    def ask(unknown: Any) -> Any:
        asked.append(trace.get_current_span().is_recording())
        raise BrokenError("a " + "secret")

    async def ask_later(unknown: Any) -> Any:
        asked.append(trace.get_current_span().is_recording())
        return Unclear()

    def fails() -> None:
        raise BrokenError

    async def fails_later() -> None:
        raise BrokenError

    store, other, policy = MemoryStore(), AsyncMemoryStore(), Policy(unknown_on_error=True)
    blocking, later = Reconcilers(store, observer=recorded), AsyncReconcilers(other, observer=recorded)
    once = Once(store, scope="shop", policy=policy, observer=recorded)
    with pytest.raises(BrokenError):
        once.operation(key=lambda: "order-0123456789", name="buy")(fails)()
    blocking.of("buy")(ask)
    blocking.run_once()

    async def trial() -> None:
        aonce = AsyncOnce(other, scope="shop", policy=policy, observer=recorded)
        with pytest.raises(BrokenError):
            await aonce.operation(key=lambda: "order-0123456789", name="buy")(fails_later)()
        later.of("buy")(ask_later)
        await later.run_once()

    asyncio.run(trial())
    assert asked == [True, True]
    assert [span.name for span in recorded.spans] == ["reconcile buy"] * 2
    failed, unclear = recorded.spans
    assert dict(failed.attributes or {})["error.type"] == "BrokenError"
    assert unclear.status.status_code is StatusCode.UNSET
    assert "a secret" not in recorded.text


def test_a_relays_publish_is_within_the_trace_of_its_message(recorded: Recorded, shop: Path) -> None:
    """R28, R44: the span of a delivery belongs to the trace in which its message was added, and says which."""
    tracer = recorded.tracers.get_tracer("server")
    with tracer.start_as_current_span("POST /orders") as request:
        (id_,) = add(shop, "o-1", outbox=Outbox("/orders", carried=carried))
    add(shop, "o-2")
    receiver = Receiver()
    relay(shop, receiver, observer=recorded)
    assert len(receiver.arrived) == 2
    published = [span for span in recorded.spans if span.kind is SpanKind.PRODUCER]
    by_id = {dict(span.attributes or {})["cloudevents.event_id"]: span for span in published}
    within = by_id.pop(id_)
    assert within.name == "publish order.placed"
    assert within.parent is not None and within.parent.span_id == request.get_span_context().span_id
    (alone,) = by_id.values()
    assert alone.parent is None


def test_a_message_carries_the_trace_it_was_made_in(recorded: Recorded, shop: Path) -> None:
    """R28, R44: CloudEvents' traceparent is stored with the message, sent as it was, and read by its consumer."""
    outbox = Outbox("/orders", carried=carried)
    with recorded.tracers.get_tracer("server").start_as_current_span("POST /orders") as request:
        add(shop, "o-1", outbox=outbox)
    receiver = Receiver()
    relay(shop, receiver, observer=recorded)
    (message,) = receiver.arrived
    made = request.get_span_context()
    line = dict(ce_headers(message))["ce-traceparent"]
    assert line == f"00-{made.trace_id:032x}-{made.span_id:016x}-{made.trace_flags:02x}"
    found = trace.get_current_span(context_of(message)).get_span_context()
    assert (found.trace_id, found.span_id, found.is_remote) == (made.trace_id, made.span_id, True)


def test_what_a_message_says_itself_is_left(recorded: Recorded, shop: Path) -> None:
    """R28: a header given by hand wins over the carried one; where nothing is traced none is added."""
    outbox, own = Outbox("/orders", carried=carried), "00-" + "1" * 32 + "-" + "2" * 16 + "-00"
    with closing(sqlite3.connect(shop, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        with recorded.tracers.get_tracer("server").start_as_current_span("POST /orders"):
            given = outbox.add(connection, "t", ("order", "1"), b"{}", headers={"traceparent": own, "tenant": "a"})
        untraced = outbox.add(connection, "t", ("order", "1"), b"{}")
        connection.execute("COMMIT")
    assert given.headers == (("traceparent", own), ("tenant", "a"))
    assert untraced.headers == ()


@pytest.mark.parametrize(("members", "names"), [(3, ["traceparent", "tracestate"]), (32, ["traceparent"])])
def test_no_message_is_refused_for_what_a_stranger_traces(shop: Path, members: int, names: list[str]) -> None:
    """R28: a caller's tracestate goes along, unless it is longer than anybody has to carry; the message is added."""
    lines = {
        "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        "tracestate": ",".join(f"vendor{number}={'x' * 100}" for number in range(members)),
    }
    with closing(sqlite3.connect(shop, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        attached = attach(TraceContextTextMapPropagator().extract(lines))
        try:
            message = Outbox("/orders", carried=carried).add(connection, "t", ("order", "1"), b"{}")
        finally:
            detach(attached)
        connection.execute("COMMIT")
    assert [name for name, _ in message.headers] == names


def test_under_asyncio_a_message_carries_it_too(recorded: Recorded, shop: Path) -> None:
    """R28, R44: AsyncOutbox adds the same header."""

    async def trial() -> Message:
        store = AsyncSqliteStore(shop)
        async with store.transaction() as transaction:
            await transaction.begin()
            with recorded.tracers.get_tracer("server").start_as_current_span("POST /orders"):
                return await AsyncOutbox("/orders", carried=carried).add(
                    transaction.connection, "t", ("order", "1"), b"{}"
                )

    message = asyncio.run(trial())
    assert [name for name, _ in message.headers] == ["traceparent"]


def test_many_at_once_are_one_span_with_links(recorded: Recorded, shop: Path) -> None:
    """R28, R44: a publisher of many gets one span for them, linked to the traces of all that have one."""
    with recorded.tracers.get_tracer("server").start_as_current_span("POST /orders") as request:
        add(shop, "o-1", "o-2", outbox=Outbox("/orders", carried=carried))
    add(shop, "o-3")
    relay(shop, Many(), observer=recorded)
    (span,) = [span for span in recorded.spans if span.kind is SpanKind.PRODUCER]
    assert dict(span.attributes or {})["messaging.batch.message_count"] == 3
    assert [link.context.span_id for link in span.links] == [request.get_span_context().span_id] * 2


def test_a_delivery_that_fails_says_its_class(recorded: Recorded, shop: Path) -> None:
    """R22, R44: the span of a failed delivery is an error with a class, and without a word of the failure's text."""
    add(shop, "o-1")
    relay(shop, Receiver(**{"o-1": RefusedError("a secret of the receiver's")}), observer=recorded)
    (span,) = recorded.spans
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == "RefusedError"
    assert "a secret of" not in recorded.text


def test_resuming_under_asyncio_is_a_span(recorded: Recorded, shop: Path) -> None:
    """R24, R44: AsyncOnce gives the same spans, several at once, each with its own operation."""
    clock = ManualClock()
    failing = [True]

    async def charge(key: str) -> str:
        if failing[0]:
            raise BrokenError
        assert trace.get_current_span().is_recording()
        return "ch_1"

    async def trial() -> int:
        store = AsyncSqliteStore(shop, clock=clock)
        once = AsyncOnce(store, scope="shop", observer=recorded)

        @once.operation(key=lambda order: f"order-0123456789-{order}", name="buy", effects="resumable")
        async def buy(order: str) -> str:
            return await current().call("charge", charge, unsent=(BrokenError,))

        for order in ("a", "b", "c"):
            with pytest.raises(BrokenError):
                await buy(order)
        failing[0] = False
        clock.advance(timedelta(hours=1))
        resumed = await once.resume()
        await store.aclose()
        return resumed.done

    assert asyncio.run(trial()) == 3
    assert [span.name for span in recorded.spans] == ["resume buy"] * 3


def test_what_no_request_says_is_on_no_requests_span(recorded: Recorded) -> None:
    """R44: a timer that notices a lost lease runs in some other request's context: that one's span is left alone."""
    with recorded.tracers.get_tracer("server").start_as_current_span("POST /elsewhere"):
        recorded(Event("lease.lost", "", "5f3c9a01", loud=True))
    (span,) = recorded.spans
    assert not span.events and not span.attributes
    assert recorded.numbers("twicesafe.events", "twicesafe.event") == {"lease.lost": 1}


def test_an_observer_cannot_harm_the_work_it_traces(caplog: pytest.LogCaptureFixture) -> None:
    """R44: what an observer raises around a piece of work is logged, by its class; the work goes on, and its own error
    comes through."""

    text = "se" + "cret"

    class Wrong:
        def __init__(self, where: str) -> None:
            self.where = where

        def __call__(self, event: Any) -> None: ...

        def around(self, work: Work) -> Any:
            if self.where == "made":
                raise ValueError(text)
            return self

        def __enter__(self) -> None:
            if self.where == "entered":
                raise ValueError(text)

        def __exit__(self, *error: object) -> bool:
            if self.where == "left":
                raise ValueError(text)
            return True

    done = []
    for where in ("made", "entered", "left", "nowhere"):
        with around(Wrong(where), Work("resume", "buy", "")):
            done.append(where)
        with pytest.raises(BrokenError), around(Wrong(where), Work("resume", "buy", "")):
            raise BrokenError
    assert done == ["made", "entered", "left", "nowhere"]
    assert caplog.text.count("the observer raised around a resume: ValueError") == 6
    assert "secret" not in caplog.text


def test_observers_together_get_what_each_would_alone(recorded: Recorded) -> None:
    """R44: one that counts is told of everything, others of what they always are; spans are made around work."""
    events: list[Any] = []

    def wrong(event: Any) -> None:
        raise ValueError

    together = Observers(wrong, events.append, recorded, log_events)
    assert together.counts
    once = AsyncOnce(AsyncMemoryStore(), scope="shop", observer=together)

    async def nothing() -> None: ...

    async def trial() -> None:
        for _ in range(2):
            await once("key-0123456789", nothing)

    asyncio.run(trial())
    assert recorded.told == ["completed", "replayed"]
    assert [event.name for event in events] == ["replayed"]
    with around(together, Work("resume", "buy", "")):
        assert trace.get_current_span().is_recording()
    assert [span.name for span in recorded.spans] == ["resume buy"]
    assert not Observers(wrong, events.append).counts
