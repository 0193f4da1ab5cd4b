"""What is seen of an operation: each attempt as it ends, the end, and what attempts say of themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import pytest

from tests.client.bindings import NO_TLS, QUICK, Hours
from tests.client.scripted import Exchange, answer, reset_after_commit, serving
from twicesafe.client import Attempt, Budgets, FailureKind, Intent, Sent, Stop, Watch
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, asend, send
from twicesafe.observe import Event, log_events

KEY = "cart-17-of-a-customer-0123456789"


def by_send(library: Any, intent: Intent, how: dict[str, Any], hours: Hours) -> None:
    with library.Client(transport=library.HTTPTransport(verify=NO_TLS)) as client:
        send(client, intent, ambient=hours.ambient, **how)


def by_asend(library: Any, intent: Intent, how: dict[str, Any], hours: Hours) -> None:
    async def main() -> None:
        async with library.AsyncClient(transport=library.AsyncHTTPTransport(verify=NO_TLS)) as client:
            await asend(client, intent, ambient=hours.async_ambient, **how)

    asyncio.run(main())


def by_transport(library: Any, intent: Intent, how: dict[str, Any], hours: Hours) -> None:
    wrapped = RetryTransport(library.HTTPTransport(verify=NO_TLS), ambient=hours.ambient, **how)
    with library.Client(transport=wrapped) as client:
        client.post(intent.url, content=intent.body, headers={"Idempotency-Key": intent.key})


def by_async_transport(library: Any, intent: Intent, how: dict[str, Any], hours: Hours) -> None:
    async def main() -> None:
        wrapped = AsyncRetryTransport(library.AsyncHTTPTransport(verify=NO_TLS), ambient=hours.async_ambient, **how)
        async with library.AsyncClient(transport=wrapped) as client:
            await client.post(intent.url, content=intent.body, headers={"Idempotency-Key": intent.key})

    asyncio.run(main())


WAYS = pytest.mark.parametrize(
    ("library", "way"),
    [(library, way) for library in (httpx2, httpx) for way in (by_send, by_asend, by_transport, by_async_transport)],
    ids=lambda value: value.__name__,
)


@WAYS
def test_each_attempt_is_told_as_it_ends(library: Any, way: Callable[..., None]) -> None:
    """R40: reason, delay, what is left and outcome of every attempt, then the end, under one id that the requests
    carry."""
    told: list[Event] = []
    hours = Hours()
    with serving(reset_after_commit, answer(503, "Retry-After: 2"), answer(201)) as server:
        intent = Intent.new("POST", f"{server.origin}/charges?code=secret", json={"card": "4242 4242"}, key=KEY)
        way(library, intent, {"policy": QUICK, "budgets": Budgets(), "watch": Watch(observer=told.append)}, hours)
        assert len(server.hits) == 3
        ids = {hit.header("twicesafe-operation") for hit in server.hits}
    assert [event.name for event in told] == ["attempt.ended"] * 3 + ["operation.succeeded"]
    first, second, third, end = [event.attempt for event in told]
    assert first is not None and second is not None and third is not None
    assert (first.number, first.failure, first.sent, first.stop) == (1, FailureKind.DROPPED, Sent.YES, None)
    assert (second.reason, second.status, second.delay) == ("503", 503, hours.waits[1])
    assert second.delay is not None and second.delay >= 2
    assert (third.reason, third.delay, third.stop) == ("201", None, Stop.ANSWERED)
    assert first.budget_left == 18 and 17 <= second.budget_left < 18
    assert first.deadline_left > second.deadline_left > third.deadline_left > 0
    assert end == third
    assert {event.operation_id for event in told} == ids and None not in ids
    assert {event.key_hint for event in told} == {"…6789"}
    assert {event.operation for event in told} == {f"POST 127.0.0.1:{server.port}/charges"}
    assert [event.loud for event in told] == [False] * 4
    assert not any(secret in repr(told) for secret in (KEY, "secret", "4242 4242"))


@WAYS
def test_all_attempts_of_a_watched_operation_say_the_same_of_it(library: Any, way: Callable[..., None]) -> None:
    """R40: the number, the most there may be, and one id, from the first attempt on."""
    with serving(answer(503), answer(201)) as server:
        how = {"policy": QUICK, "budgets": Budgets(), "watch": Watch(observer=lambda event: None)}
        way(library, Intent.new("POST", server.origin, key=KEY), how, Hours())
        assert [hit.attempt for hit in server.hits] == ["1", "2"]
        assert [hit.header("twicesafe-attempt-limit") for hit in server.hits] == [str(QUICK.attempts)] * 2
        first, second = [hit.header("twicesafe-operation") for hit in server.hits]
    assert first is not None and first == second and first not in KEY


@WAYS
def test_an_attempt_that_nobody_watches_says_its_number(library: Any, way: Callable[..., None]) -> None:
    """R40: a first attempt no more than that; those that follow how many there may be, and which belong together."""
    with serving(answer(503), answer(503), answer(201)) as server:
        way(library, Intent.new("POST", server.origin, key=KEY), {"policy": QUICK, "budgets": Budgets()}, Hours())
        assert [hit.attempt for hit in server.hits] == ["1", "2", "3"]
        assert [hit.header("twicesafe-attempt-limit") for hit in server.hits] == [None, "4", "4"]
        ids = [hit.header("twicesafe-operation") for hit in server.hits]
    assert ids[0] is None and ids[1] is not None and ids[1] == ids[2]


def test_two_operations_have_two_ids() -> None:
    """R40: the id is of the call, and not of the key; the same intent sent twice has two."""
    told: list[Event] = []
    intent = Intent.new("POST", "http://x.example")
    with httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(200))) as client:
        for _ in range(2):
            send(client, intent, budgets=Budgets(), watch=Watch(observer=told.append))
    assert len(told) == 4 and len({event.operation_id for event in told}) == 2


def test_an_unknown_outcome_is_loud() -> None:
    """R40, R44: what may have been done and is not known needs somebody; where nothing was sent it does not."""
    told: list[Event] = []
    how: dict[str, Any] = {"policy": QUICK.but(attempts=1), "budgets": Budgets(), "watch": Watch(observer=told.append)}
    with serving(reset_after_commit) as server, httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
        send(client, Intent.new("POST", server.origin), **how)
        assert len(server.hits) == 1
    with serving(listening=False) as server, httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
        send(client, Intent.new("POST", server.origin), **how)
    assert [(event.name, event.loud) for event in told[1::2]] == [
        ("operation.unknown", True),
        ("operation.unknown", False),
    ]


def test_what_an_exception_ends_is_told_as_left() -> None:
    """R40: a request that cannot be sent and a call that is cancelled end without an outcome, and are told."""
    told: list[Event] = []
    watch = Watch(observer=told.append)
    with httpx2.Client() as client, pytest.raises(httpx2.UnsupportedProtocol):
        send(client, Intent.new("POST", "gopher://x.example"), budgets=Budgets(), watch=watch)

    async def main() -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def held(exchange: Exchange) -> None:
            exchange.read()
            loop.call_soon_threadsafe(arrived.set)
            exchange.wait_until_left()

        with serving(held) as server:
            async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(verify=NO_TLS)) as client:
                intent = Intent.new("PUT", server.origin)
                sending = asyncio.create_task(asend(client, intent, budgets=Budgets(), watch=watch))
                await arrived.wait()
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            assert len(server.hits) == 1

    asyncio.run(main())
    assert [(event.name, event.attempt) for event in told] == [("operation.left", None)] * 2


def test_an_observer_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """R40: what a watch does is no concern of the operation's."""

    def broken(event: Event) -> None:
        raise LookupError(event.name)

    with serving(answer(503), answer(201)) as server, httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as c:
        how: dict[str, Any] = {"policy": QUICK, "budgets": Budgets(), "ambient": Hours().ambient}
        send(c, Intent.new("POST", server.origin), watch=Watch(observer=broken), **how).raise_for_outcome()
        assert len(server.hits) == 2
    assert len(caplog.records) == 3


class BrokenTrace:
    """Raises wherever it can."""

    def __init__(self, *raising: str) -> None:
        self._raising = raising

    def __getattr__(self, name: str) -> Any:
        if name in self._raising:
            raise LookupError(name)
        return lambda *arguments: self if name == "begin" else ()


@pytest.mark.parametrize("raising", [("begin",), ("begins",), ("headers",), ("ended",), ("over",)], ids=str)
def test_a_tracing_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture, raising: tuple[str, ...]) -> None:
    """R40: an exporter that fails within an attempt takes no outcome away, and is logged."""
    with serving(answer(503), answer(201)) as server, httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as c:
        how: dict[str, Any] = {"policy": QUICK, "budgets": Budgets(), "ambient": Hours().ambient}
        watch = Watch(observer=lambda event: None, tracing=BrokenTrace(*raising))
        send(c, Intent.new("POST", server.origin), watch=watch, **how).raise_for_outcome()
        assert len(server.hits) == 2
    assert {record.getMessage().partition(":")[0] for record in caplog.records} == {"the tracing raised"}


def test_the_address_of_an_event_holds_no_secret() -> None:
    """R40, R22: no name and password, no query, and of a key in the path no more than its hint."""
    told: list[Event] = []
    with httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(200))) as client:
        intent = Intent.new("PUT", f"https://ann:geheim@x.example:444/orders/{KEY}?t=geheim#geheim", key=KEY)
        send(client, intent, budgets=Budgets(), watch=Watch(observer=told.append))
    assert {event.operation for event in told} == {"PUT x.example:444/orders/…6789"}
    assert KEY not in repr(told) and "geheim" not in repr(told)


def test_the_log_says_it_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """R40: where no observer is given, each attempt is one line at debug level."""
    attempt = Attempt(2, 1.0, 0.25, Sent.YES, 503, None, "503", 0.5, None, 28.0, 17.0)
    caplog.set_level(logging.DEBUG, "twicesafe")
    log_events(
        Event("attempt.ended", "POST x.example/charges", "…6789", loud=False, attempt=attempt, operation_id="ab12")
    )
    log_events(Event("operation.left", "POST x.example/charges", "…6789", loud=False, operation_id="ab12"))
    assert [record.getMessage() for record in caplog.records] == [
        (
            "twicesafe.attempt.ended operation=POST x.example/charges key=…6789 id=ab12 attempt=2 reason='503' "
            "sent=yes seconds=0.250 delay=0.500 deadline_left=28.000 budget_left=17.0"
        ),
        "twicesafe.operation.left operation=POST x.example/charges key=…6789 id=ab12",
    ]
