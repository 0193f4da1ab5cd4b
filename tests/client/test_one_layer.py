"""Retry layers that meet: within one another, one after another, and around this package."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import httpx2
import pytest
import requests
import tenacity

from tests.client.bindings import NO_TLS, QUICK, Hours
from tests.client.scripted import Exchange, answer, reset_after_commit, serving
from twicesafe.client import Budgets, Intent, Rejected, Stop, Succeeded, Unknown, Watch
from twicesafe.client._left_open import LEFT_OPEN, REMEMBERED
from twicesafe.client.httpx import RetryTransport, asend, send
from twicesafe.client.requests import RetryAdapter
from twicesafe.observe import Event

THREE = QUICK.but(attempts=3)


class How:
    """The settings of one layer, and what its watch was told."""

    def __init__(self, policy: Any = THREE) -> None:
        self.told: list[Event] = []
        self.hours = Hours()
        self.policy = policy

    @property
    def names(self) -> list[tuple[str, bool]]:
        """Events that speak of other layers, and whether they are loud."""
        return [(event.name, event.loud) for event in self.told if event.name.startswith(("retry.", "key."))]

    def __call__(self, *, asynchronous: bool = False) -> dict[str, Any]:
        ambient = self.hours.async_ambient if asynchronous else self.hours.ambient
        return {
            "policy": self.policy,
            "budgets": Budgets(),
            "ambient": ambient,
            "watch": Watch(observer=self.told.append),
        }


class Forwarding:
    """A transport as people write them: it hands each request to another client, as a request of that client's own."""

    def __init__(self, forward: Any) -> None:
        self._forward = forward

    def handle_request(self, request: Any) -> Any:
        answered = self._forward(request)
        return httpx2.Response(answered.status_code, content=answered.content)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def close(self) -> None:
        pass


# --- within ----------------------------------------------------------------------------------------------------------


def test_a_layer_of_another_library_within_an_attempt_is_that_attempt() -> None:
    """R40, K: three attempts by httpx2 over three by httpx are three hits, numbered as the outer layer counts."""
    outer, inner = How(), How()
    with (
        serving(*[answer(503)] * 3) as server,
        httpx.Client(transport=RetryTransport(httpx.HTTPTransport(verify=NO_TLS), **inner())) as below,
    ):

        def forward(request: Any) -> Any:
            key = request.headers["idempotency-key"]
            return below.post(str(request.url), content=request.content, headers={"Idempotency-Key": key})

        with httpx2.Client(transport=Forwarding(forward)) as client:
            outcome = send(client, Intent.new("POST", server.origin, json=1), **outer())
        assert [hit.attempt for hit in server.hits] == ["1", "2", "3"]
        assert len({hit.header("twicesafe-operation") for hit in server.hits}) == 1
        assert {hit.header("twicesafe-attempt-limit") for hit in server.hits} == {"3"}
    assert isinstance(outcome, Unknown) and outcome.stop is Stop.ATTEMPTS
    assert inner.names == [("retry.nested", False)] * 3


@pytest.mark.parametrize("typed", [True, False], ids=["send", "transport"])
def test_layers_meet_where_nobody_watches(caplog: pytest.LogCaptureFixture, *, typed: bool) -> None:
    """R40, K: all of it holds for an operation without a watch, from its first attempt on; what is loud is logged."""

    def quiet() -> dict[str, Any]:
        return {"policy": THREE, "ambient": Hours().ambient, "budgets": Budgets()}

    with (
        serving(answer(503), answer(503), answer(201)) as server,
        httpx.Client(transport=httpx.HTTPTransport(verify=NO_TLS)) as below,
    ):

        def forward(request: Any) -> Any:
            outcome = send(below, Intent.new("POST", str(request.url), content=request.content), **quiet())
            return outcome.response

        forwarding = Forwarding(forward)
        with httpx2.Client(transport=forwarding if typed else RetryTransport(forwarding, **quiet())) as client:
            if typed:
                assert isinstance(send(client, Intent.new("POST", server.origin, json=1), **quiet()), Succeeded)
            else:
                headers = {"Idempotency-Key": "a-key-of-the-callers"}
                assert client.post(server.origin, json=1, headers=headers).status_code == 201
        assert [hit.attempt for hit in server.hits] == ["1", "2", "3"]
    assert [record.getMessage().split()[0] for record in caplog.records] == ["twicesafe.key.made_anew"] * 3


def test_two_calls_of_send_within_one_another_are_one() -> None:
    """R40, K: a function that sends what it is given, inside of an attempt at the same thing, sends it once."""
    outer, inner = How(), How()
    with serving(*[answer(503)] * 3) as server, httpx.Client(transport=httpx.HTTPTransport(verify=NO_TLS)) as below:

        def forward(request: Any) -> Any:
            outcome = send(below, Intent.new(request.method, str(request.url)), **inner())
            assert isinstance(outcome, Rejected) and len(outcome.attempts) == 1
            return outcome.response

        with httpx2.Client(transport=Forwarding(forward)) as client:
            send(client, client.build_request("GET", server.origin), **outer())
        assert len(server.hits) == 3
    assert inner.names == [("retry.nested", False)] * 3


def test_a_key_of_its_own_within_an_attempt_is_told_loudly() -> None:
    """R40, K: whoever makes a key for each attempt at the same thing defeats it; it is not retried on top, and told."""
    outer, inner = How(), How()
    with serving(*[answer(503)] * 3) as server, httpx.Client(transport=httpx.HTTPTransport(verify=NO_TLS)) as below:

        def forward(request: Any) -> Any:
            return send(below, Intent.new("POST", str(request.url), content=request.content), **inner()).response

        with httpx2.Client(transport=Forwarding(forward)) as client:
            send(client, Intent.new("POST", server.origin, json=1), **outer())
        assert len(server.hits) == 3
    assert inner.names == [("key.made_anew", True)] * 3


def test_another_operation_within_an_attempt_keeps_its_retries() -> None:
    """R40: what a hook asks of another place, such as a login, is no attempt of the operation."""
    outer, inner = How(), How()
    with serving(answer(503), answer(200), answer(201)) as server:
        login = httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS))

        def sign_in(request: Any) -> None:
            outcome = send(login, login.build_request("GET", f"{server.origin}/login"), **inner())
            assert isinstance(outcome, Succeeded)

        with (
            login,
            httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS), event_hooks={"request": [sign_in]}) as c,
        ):
            send(c, Intent.new("POST", f"{server.origin}/charges", json=1), **outer())
        assert [hit.target for hit in server.hits] == ["/login", "/login", "/charges"]
    assert inner.names == []


def test_a_task_that_outlives_the_operation_is_not_within_it() -> None:
    """R40: what was begun in an attempt and sends after the operation has all its attempts."""
    outer, inner = How(), How()

    async def main(origin: str) -> None:
        begun: list[asyncio.Task[Any]] = []
        over = asyncio.Event()

        async def later() -> None:
            await over.wait()
            await asend(client, client.build_request("GET", origin), **inner(asynchronous=True))

        async def hook(request: Any) -> None:
            if not begun:
                begun.append(asyncio.create_task(later()))

        transport = httpx2.AsyncHTTPTransport(verify=NO_TLS)
        async with httpx2.AsyncClient(transport=transport, event_hooks={"request": [hook]}) as client:
            await asend(client, client.build_request("GET", origin), **outer(asynchronous=True))
            over.set()
            await begun[0]

    with serving(answer(200), answer(503), answer(200)) as server:
        asyncio.run(main(server.origin))
        assert len(server.hits) == 3
    assert inner.names == []


def test_a_thread_that_is_given_the_context_is_within_it() -> None:
    """R40: blocking work that an attempt hands to a thread, as asyncio does it, is a part of that attempt."""
    outer, inner = How(), How()

    async def main(origin: str) -> None:
        below = httpx.Client(transport=httpx.HTTPTransport(verify=NO_TLS))

        async def hook(request: Any) -> None:
            asked = below.build_request("GET", str(request.url))
            outcome = await asyncio.to_thread(send, below, asked, **inner())
            assert len(outcome.attempts) == 1

        transport = httpx2.AsyncHTTPTransport(verify=NO_TLS)
        with below:
            async with httpx2.AsyncClient(transport=transport, event_hooks={"request": [hook]}) as client:
                await asend(client, client.build_request("GET", origin), **outer(asynchronous=True))

    with serving(answer(503), answer(200)) as server:
        asyncio.run(main(server.origin))
        assert len(server.hits) == 2
    assert inner.names == [("retry.nested", False)]


def test_operations_side_by_side_are_not_within_one_another() -> None:
    """R40: two tasks that send the same intent at once, as a hedge, are two operations."""
    how = How()

    async def main(origin: str) -> None:
        intent = Intent.new("POST", origin, json=1)
        async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(verify=NO_TLS)) as client:
            await asyncio.gather(*[asend(client, intent, **how(asynchronous=True)) for _ in range(2)])

    with serving(*[answer(503, "Retry-After: 1")] * 6) as server:
        asyncio.run(main(server.origin))
        assert len(server.hits) == 6
    assert how.names == []


def test_layers_of_all_libraries_meet_as_one() -> None:
    """R40, K: three attempts by httpx2 over three by requests are three hits, under one number and one id."""
    outer, inner = How(), How()
    with serving(*[answer(503)] * 3) as server, requests.Session() as below:
        below.mount("http://", RetryAdapter(requests.adapters.HTTPAdapter(), **inner()))

        def forward(request: Any) -> Any:
            key = request.headers["idempotency-key"]
            return below.post(str(request.url), data=request.content, headers={"Idempotency-Key": key})

        with httpx2.Client(transport=Forwarding(forward)) as client:
            send(client, Intent.new("POST", server.origin, json=1), **outer())
        assert [hit.attempt for hit in server.hits] == ["1", "2", "3"]
        assert len({hit.header("twicesafe-operation") for hit in server.hits}) == 1
    assert inner.names == [("retry.nested", False)] * 3


# --- around ----------------------------------------------------------------------------------------------------------


def in_a_loop(function: Any) -> Any:
    """Three tries, as a decorator has them."""
    return tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none(), reraise=True)(function)


def test_a_decorator_around_a_function_that_makes_its_own_key_is_told_loudly() -> None:
    """R40, K: it asks three times with three keys, which no server can know to be one; the second time it is told."""
    how = How(QUICK.but(attempts=2))
    with (
        serving(*[reset_after_commit] * 6) as server,
        httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as c,
    ):

        @in_a_loop
        def pay() -> Any:
            return send(c, Intent.new("POST", server.origin, json={"amount": 100}), **how()).raise_for_outcome()

        with pytest.raises(Exception, match="unknown"):
            pay()
        assert (len(server.hits), len({hit.key for hit in server.hits})) == (6, 3)
    assert how.names == [("key.made_anew", True)] * 2


def test_a_decorator_around_an_intent_asks_with_one_key() -> None:
    """R40, K: the same loop, around an intent that was made before it: one key, and a quiet word that attempts
    multiply."""
    how = How(QUICK.but(attempts=2))
    with serving(*[reset_after_commit] * 5, answer(201)) as server:
        intent = Intent.new("POST", server.origin, json={"amount": 100})

        @in_a_loop
        def pay() -> Any:
            with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
                return send(client, intent, **how()).raise_for_outcome()

        assert pay().status_code == 201
        assert {hit.key for hit in server.hits} == {intent.key} and len(server.hits) == 6
    assert how.names == [("retry.around", False)] * 2
    assert not LEFT_OPEN.known


def test_a_decorator_around_a_client_with_a_transport_is_told_too() -> None:
    """R40, K: and the same where the layer is under a client, and where there is no key at all."""
    how = How(QUICK.but(attempts=1))
    with serving(*[reset_after_commit] * 4) as server:
        wrapped = RetryTransport(httpx2.HTTPTransport(verify=NO_TLS), **how())
        with httpx2.Client(transport=wrapped) as client:
            for key in ("one-key-made-in-a-loop", "another-made-in-a-loop"):
                with pytest.raises(httpx2.ReadError):
                    client.post(server.origin, json=1, headers={"Idempotency-Key": key})
            for _ in range(2):
                with pytest.raises(httpx2.ReadError):
                    client.post(server.origin, json=2)
        assert len(server.hits) == 4
    assert how.names == [("key.made_anew", True)] * 2


def test_a_call_that_was_cancelled_and_made_anew_is_told() -> None:
    """R40, K: a time-out around the call leaves its outcome open; asking again with a new key may do it twice."""
    how = How()

    async def main() -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def held(exchange: Exchange) -> None:
            exchange.read()
            loop.call_soon_threadsafe(arrived.set)
            exchange.wait_until_left()

        with serving(held, answer(201)) as server:
            async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(verify=NO_TLS)) as client:
                sending = [
                    asend(client, Intent.new("POST", server.origin, json=1), **how(asynchronous=True)) for _ in range(2)
                ]
                first = asyncio.create_task(sending[0])
                await arrived.wait()
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
                await sending[1]
            assert len(server.hits) == 2

    asyncio.run(main())
    assert how.names == [("key.made_anew", True)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(answer(201), {"amount": 100}, id="the first is done"),
        pytest.param(answer(402), {"amount": 100}, id="the first was refused"),
        pytest.param(reset_after_commit, {"amount": 101}, id="the second asks for something else"),
    ],
)
def test_equal_intents_are_nothing_to_speak_of(first: Any, second: Any) -> None:
    """R40, I2: two intents may ask for the same thing; only after an open outcome is that worth a word."""
    how = How(QUICK.but(attempts=1))
    with serving(first, answer(201)) as server:
        for body in ({"amount": 100}, second):
            with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
                send(client, Intent.new("POST", server.origin, json=body), **how())
        assert len(server.hits) == 2
    assert how.names == []


def test_a_key_that_is_made_anew_is_told_once() -> None:
    """R40: intents that are equal by nature are told of once for each outcome that is open, not for minutes."""
    how = How(QUICK.but(attempts=1))
    with serving(reset_after_commit, answer(201), answer(201)) as server:
        for _ in range(3):
            with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
                send(client, Intent.new("POST", server.origin, json="tick"), **how())
        assert len(server.hits) == 3
    assert how.names == [("key.made_anew", True)]


def test_an_open_outcome_is_forgotten_in_time() -> None:
    """R40: after some minutes whoever asks again has decided to, and the memory that this takes is bounded."""
    how = How(QUICK.but(attempts=1))
    with serving(reset_after_commit, answer(201)) as server:
        for _ in range(2):
            with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
                send(client, Intent.new("POST", server.origin, json=1), **how())
            how.hours.sleep(REMEMBERED + 1)
        assert len(server.hits) == 2
    assert how.names == []
    lost = httpx2.MockTransport(lambda request: httpx2.Response(500))
    with httpx2.Client(transport=lost) as client:
        for number in range(300):
            send(client, Intent.new("POST", "http://x.example", json=number), **how())
    assert len(LEFT_OPEN.known) <= 256
