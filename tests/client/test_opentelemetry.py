"""Spans, by the SDK itself and an exporter in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.client.bindings import NO_TLS, QUICK, Hours
from tests.client.scripted import Exchange, answer, reset_after_commit, serving
from twicesafe.client import Budgets, Intent, Unknown, Watch
from twicesafe.client.calls import CallTransport, Provider
from twicesafe.client.httpx import RetryTransport, asend, send
from twicesafe.client.opentelemetry import Tracing
from twicesafe.once import Once, current
from twicesafe.stores.memory import MemoryStore

KEY = "cart-17-of-a-customer-0123456789"
CARD = {"card": "4242-4242-4242-4242"}


class Spans:
    """A tracer provider of its own, and what it exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.watch = Watch(observer=lambda event: None, tracing=Tracing(self.provider))

    @property
    def attempts(self) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.kind is SpanKind.CLIENT]

    @property
    def operation(self) -> ReadableSpan:
        (span,) = [span for span in self._exporter.get_finished_spans() if span.name.startswith("twicesafe ")]
        return span


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def how(spans: Spans, *, asynchronous: bool = False) -> dict[str, Any]:
    hours = Hours()
    ambient = hours.async_ambient if asynchronous else hours.ambient
    return {"policy": QUICK, "budgets": Budgets(), "ambient": ambient, "watch": spans.watch}


def test_each_attempt_is_a_span_by_the_conventions(spans: Spans) -> None:
    """R40, R44: a client span for each attempt with the conventions' names, and the count of resends."""
    with serving(reset_after_commit, answer(503), answer(201)) as server:
        intent = Intent.new("POST", f"{server.origin}/charges?code=secret", json=CARD, key=KEY)
        with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
            send(client, intent, **how(spans))
        assert len(server.hits) == 3
    first, second, _ = spans.attempts
    assert [span.name for span in spans.attempts] == ["POST"] * 3
    for span in spans.attempts:
        about = dict(span.attributes or {})
        assert about["http.request.method"] == "POST"
        assert about["server.address"] == "127.0.0.1" and about["server.port"] == server.port
        assert about["url.full"] == f"{server.origin}/charges"
    about = [dict(span.attributes or {}) for span in spans.attempts]
    assert [span.get("http.request.resend_count") for span in about] == [None, 1, 2]
    assert [span.get("http.response.status_code") for span in about] == [None, 503, 201]
    assert [span.get("error.type") for span in about] == ["dropped", "503", None]
    assert [span.status.status_code for span in spans.attempts] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    assert first.end_time is not None and second.start_time is not None and first.end_time <= second.start_time
    text = "".join(span.to_json() for span in (*spans.attempts, spans.operation))
    assert not any(secret in text for secret in (KEY, "secret", CARD["card"]))


def test_one_span_is_around_them(spans: Spans) -> None:
    """R40, R44: attempts belong to their operation, and that to whatever was current."""
    tracer = trace.get_tracer("caller", tracer_provider=spans.provider)
    with serving(answer(503), answer(201)) as server, httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as c:
        with tracer.start_as_current_span("checkout") as checkout:
            send(c, Intent.new("POST", server.origin, key=KEY), **how(spans))
            assert trace.get_current_span() is checkout
        assert len(server.hits) == 2
        sent = [hit.header("traceparent") for hit in server.hits]
        ids = {hit.header("twicesafe-operation") for hit in server.hits}
    operation = spans.operation
    assert operation.parent is not None and operation.parent.span_id == checkout.get_span_context().span_id
    assert [span.parent.span_id for span in spans.attempts if span.parent] == [operation.context.span_id] * 2
    about = dict(operation.attributes or {})
    assert (about["twicesafe.outcome"], about["twicesafe.attempts"], about["twicesafe.key_hint"]) == (
        "succeeded",
        2,
        "…6789",
    )
    assert {about["twicesafe.operation_id"]} == ids
    assert operation.status.status_code is StatusCode.UNSET
    carried = [f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}" for span in spans.attempts]
    assert [str(line)[:-3] for line in sent] == carried


def test_a_call_of_an_operation_takes_what_its_attempts_carry(spans: Spans) -> None:
    """R25, R40: a traced retry layer over a bound client: ids and contexts differ by attempt, and ask for nothing."""
    once = Once(MemoryStore(), scope="shop", observer=lambda event: None)
    stripe = Provider.of("stripe-v1")

    def charge(key: str) -> str:
        bound = CallTransport(httpx2.HTTPTransport(verify=NO_TLS), stripe)
        with httpx2.Client(transport=RetryTransport(bound, **how(spans))) as client:
            response = client.post(server.origin, json={"cents": 4200}, headers={"Idempotency-Key": key})
            return str(response.raise_for_status().json())

    @once.operation(key=lambda: "order-1", name="buy", effects="resumable")
    def buy() -> str:
        return current().call("charge", charge, to=stripe)

    with serving(reset_after_commit, answer(201, json_="ch_1")) as server:
        assert buy() == "ch_1"
        assert [hit.attempt for hit in server.hits] == ["1", "2"] and len({hit.key for hit in server.hits}) == 1
    assert len(spans.attempts) == 2


def test_a_transport_traces_too(spans: Spans) -> None:
    """R40: the same spans where the layer is under a client, and an unknown outcome is an error of the operation."""
    with serving(*[reset_after_commit] * 4) as server:
        wrapped = RetryTransport(httpx2.HTTPTransport(verify=NO_TLS), **how(spans))
        with httpx2.Client(transport=wrapped) as client, pytest.raises(httpx2.ReadError):
            client.post(server.origin, headers={"Idempotency-Key": KEY})
        assert len(server.hits) == 4
        assert len({hit.header("traceparent") for hit in server.hits}) == 4
    assert len(spans.attempts) == 4
    about = dict(spans.operation.attributes or {})
    assert (about["twicesafe.outcome"], about["twicesafe.stop"]) == ("unknown", "attempts")
    assert spans.operation.status.status_code is StatusCode.ERROR


def test_a_cancelled_attempt_ends_its_spans(spans: Spans) -> None:
    """R40: no span is left open, and none stays current, where the operation is left by cancellation."""

    async def main() -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def held(exchange: Exchange) -> None:
            exchange.read()
            loop.call_soon_threadsafe(arrived.set)
            exchange.wait_until_left()

        with serving(held) as server:
            async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(verify=NO_TLS)) as client:
                intent = Intent.new("POST", server.origin, key=KEY)
                sending = asyncio.create_task(asend(client, intent, **how(spans, asynchronous=True)))
                await arrived.wait()
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            assert len(server.hits) == 1

    asyncio.run(main())
    assert trace.get_current_span() is trace.INVALID_SPAN
    (attempt,) = spans.attempts
    assert dict(attempt.attributes or {})["error.type"] == "CancelledError"
    assert dict(spans.operation.attributes or {})["error.type"] == "CancelledError"


def test_spans_of_operations_side_by_side_do_not_mix(spans: Spans) -> None:
    """R40: twenty at once, each with a second attempt: every attempt is below its own operation."""

    async def main(origin: str) -> None:
        async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(verify=NO_TLS)) as client:
            intents = [Intent.new("POST", f"{origin}/{number}") for number in range(20)]
            await asyncio.gather(*[asend(client, intent, **how(spans, asynchronous=True)) for intent in intents])

    with serving(*[answer(503)] * 20, *[answer(201)] * 20) as server:
        asyncio.run(main(server.origin))
        assert len(server.hits) == 40
    finished = spans._exporter.get_finished_spans()
    operations = {span.context.span_id: span for span in finished if span.kind is not SpanKind.CLIENT}
    assert len(operations) == 20 and len(spans.attempts) == 40
    for span in spans.attempts:
        assert span.parent is not None
        above = operations[span.parent.span_id]
        assert (span.attributes or {})["url.full"] == (above.attributes or {})["url.full"]


def test_methods_and_ports_are_the_conventions(spans: Spans) -> None:
    """R44: a method that nobody knows makes no name of its own, and a scheme's own port is said."""
    answers = httpx2.MockTransport(lambda request: httpx2.Response(200))
    with httpx2.Client(transport=answers) as client:
        outcome = send(client, client.build_request("BREW", "https://ann:geheim@x.example/pot"), **how(spans))
        assert not isinstance(outcome, Unknown)
    (attempt,) = spans.attempts
    about = dict(attempt.attributes or {})
    assert (attempt.name, about["http.request.method"], about["http.request.method_original"]) == (
        "HTTP",
        "_OTHER",
        "BREW",
    )
    assert (about["server.address"], about["server.port"]) == ("x.example", 443)
    assert about["url.full"] == "https://x.example/pot"
