"""Deadlines and cancellation, on servers that do not answer."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import httpx
import httpx2
import pytest

from tests.client.bindings import HTTPX, NO_TLS, QUICK, Binding, Hours
from tests.client.certificates import Certificate
from tests.client.scripted import Act, answer, drip, drip_head, promise, serving, silence, silence_in_body
from twicesafe.client import Budgets, Intent, RetryPolicy, Sent, Stop, Succeeded, Unknown, report_of
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, asend, send

BLOCKING = [binding for binding in HTTPX if not binding.asynchronous]
PATIENT: dict[str, Any] = {"timeout": 60.0}
"""A client whose own time-outs would not help."""


@pytest.mark.parametrize("act", [silence_in_body, drip])
def test_the_deadline_ends_the_call(act: Act, typed: Binding) -> None:
    """R39, K: silent within the body, or talking for ever: the call ends at its deadline, thread and all."""
    threads = set(threading.enumerate())
    policy = RetryPolicy(deadline=timedelta(seconds=0.6), attempt_timeout=None)
    with serving(act) as server:
        intent = Intent.new("POST", server.origin, json=1)
        began = time.monotonic()
        result = typed.perform(lambda client: intent, Hours(), policy, **PATIENT)
        took = time.monotonic() - began
        assert len(server.hits) == 1
    assert 0.5 < took < 5
    assert isinstance(result.outcome, Unknown)
    assert (result.outcome.stop, result.outcome.sent, result.outcome.key) == (Stop.DEADLINE, Sent.YES, intent.key)
    assert isinstance(result.outcome.error, typed.library.TimeoutException)
    for thread in set(threading.enumerate()) - threads:
        thread.join(30)
        assert not thread.is_alive(), f"{thread.name} was left behind"


@pytest.mark.parametrize("act", [drip_head, promise])
@pytest.mark.parametrize("certificate", [None, Certificate.TRUSTED], ids=["plain", "tls"])
@pytest.mark.parametrize("binding", BLOCKING, ids=lambda binding: binding.name)
def test_a_head_that_drips_ends_at_the_deadline(binding: Binding, act: Act, certificate: Certificate | None) -> None:
    """R39: byte by byte, or behind one interim answer after another: each of them comes in time, and all do not."""
    policy = RetryPolicy(deadline=timedelta(seconds=0.3), attempt_timeout=None, attempts=1)
    with serving(act, certificate=certificate) as server:
        intent = Intent.new("POST", server.origin, json=1)
        began = time.monotonic()
        result = binding.perform(lambda client: intent, Hours(), policy, **PATIENT)
        took = time.monotonic() - began
        assert len(server.hits) == 1
    assert 0.2 < took < 10
    assert isinstance(result.error, binding.library.TimeoutException)


def test_no_attempt_is_left_behind_to_charge_later(typed: Binding) -> None:
    """K: an attempt that was given up is over before the next one begins: its connection is closed."""
    over = []

    def slow(exchange: Any) -> None:
        exchange.read()
        exchange.wait_until_left()
        over.append("given up")

    with serving(slow, answer(201)) as server:
        hours = Hours(asleep=lambda: over.append("next"))
        intent = Intent.new("POST", server.origin, json=1)
        result = typed.perform(
            lambda client: intent, hours, QUICK.but(attempt_timeout=timedelta(seconds=0.5)), **PATIENT
        )
        assert len(server.hits) == 2
    assert isinstance(result.outcome, Succeeded)
    assert sorted(over) == ["given up", "next"]


def test_a_deadline_per_call_overrides_the_policys(typed: Binding) -> None:
    """R39, K: five seconds in all and Retry-After 60: the 503 is returned at once."""
    with serving(answer(503, "Retry-After: 60")) as server:
        with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
            hours = Hours()
            outcome = send(
                client,
                Intent.new("POST", server.origin),
                deadline=timedelta(seconds=5),
                budgets=Budgets(),
                ambient=hours.ambient,
            )
        assert len(server.hits) == 1
    assert hours.waits == [] and outcome.stop is Stop.DEADLINE and outcome.response.status_code == 503


def test_the_clients_own_timeouts_still_count(binding: Binding) -> None:
    """R39: the deadline clips the client's time-outs and never lengthens them."""
    with serving(silence, answer(201)) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = binding.perform(lambda client: intent, Hours(), QUICK, timeout=0.5)
        assert len(server.hits) == 2
    assert result.response.status_code == 201
    assert result.report.attempts[0].seconds < 4


def test_a_streamed_body_is_its_readers(httpx_transport: Binding) -> None:
    """R39: a transport's deadline ends with the head; who then takes an hour to read the body reads all of it."""
    hours = Hours()
    with serving(answer(200, body=b"x" * 500_000)) as server:
        if httpx_transport.asynchronous:
            size = asyncio.run(_aread_late(httpx_transport, server.origin, hours))
        else:
            library = httpx_transport.library
            wrapped = RetryTransport(library.HTTPTransport(verify=NO_TLS), budgets=Budgets(), ambient=hours.ambient)
            with (
                httpx_transport.library.Client(transport=wrapped) as client,
                client.stream("GET", server.origin) as response,
            ):
                hours.waits.append(3600.0)
                size = sum(len(piece) for piece in response.iter_raw())
    assert size == 500_000


async def _aread_late(transport: Binding, url: str, hours: Hours) -> int:
    wrapped = AsyncRetryTransport(
        transport.library.AsyncHTTPTransport(verify=NO_TLS), budgets=Budgets(), ambient=hours.async_ambient
    )
    async with transport.library.AsyncClient(transport=wrapped) as client, client.stream("GET", url) as response:
        hours.waits.append(3600.0)
        return sum([len(piece) async for piece in response.aiter_raw()])


@pytest.mark.parametrize("library", [httpx2, httpx], ids=lambda library: library.__name__)
@pytest.mark.parametrize("through", ["send", "transport"])
def test_cancellation_passes_through(library: Any, through: str) -> None:
    """R36, I8: a task that is cancelled while it waits for the answer ends at once; the intent can be sent again."""

    async def story(origin: str, arrived: asyncio.Event) -> Any:
        intent = Intent.new("POST", origin, json=1)
        transport = library.AsyncHTTPTransport(verify=NO_TLS)
        if through == "transport":
            transport = AsyncRetryTransport(transport, budgets=Budgets())
        async with library.AsyncClient(transport=transport) as client:
            headers = {"Idempotency-Key": intent.key}

            async def attempt() -> Any:
                if through == "transport":
                    return await client.post(origin, content=intent.body, headers=headers)
                return await asend(client, intent, budgets=Budgets())

            task = asyncio.create_task(attempt())
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert report_of(caught.value).key == intent.key
            answered = await attempt()
            return intent, answered

    async def main() -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def noticed(exchange: Any) -> None:
            exchange.read()
            loop.call_soon_threadsafe(arrived.set)
            exchange.wait_until_left()

        with serving(noticed, answer(201)) as server:
            intent, answered = await story(server.origin, arrived)
            keys = [hit.key for hit in server.hits]
            bodies = {hit.body for hit in server.hits}
        assert (keys, bodies) == ([intent.key] * 2, {b"1"})
        assert (answered if through == "transport" else answered.response).status_code == 201

    asyncio.run(main())


def test_an_interrupt_between_attempts_passes_through(typed: Binding) -> None:
    """I8: Ctrl-C while waiting ends the call; the key and the attempts so far are on the exception."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with serving(answer(503)) as server:
        intent = Intent.new("POST", server.origin, json=1)
        with pytest.raises(KeyboardInterrupt) as caught:
            typed.perform(lambda client: intent, Hours(asleep=interrupt), QUICK)
        assert len(server.hits) == 1
    report = report_of(caught.value)
    assert report.key == intent.key and [attempt.status for attempt in report.attempts] == [503]
