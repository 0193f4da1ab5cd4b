"""The client for tests, on good applications and bad ones."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx2
import pytest

from tests.testing.shops import BlockingShop, Shop
from twicesafe.errors import ConfigurationError
from twicesafe.testing.client import AsyncIdempotentClient, IdempotentClient, ResponseDropper
from twicesafe.testing.effects import OneEffect
from twicesafe.testing.intents import EffectsError, IntentBrokenError

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
CENTS = {"cents": 500}


def all_trials(client: IdempotentClient) -> list[list[int]]:
    """Every trial there is, and the statuses of its answers."""
    return [
        [answer.status_code for answer in tried.answers]
        for tried in (
            client.once("/charges", json=CENTS),
            client.twice("/charges", json=CENTS),
            client.at_once(3, "/charges", json=CENTS),
            client.lost_answer("/charges", json=CENTS),
            client.changed("/charges", {"json": {"cents": 501}}, json=CENTS),
        )
    ]


@pytest.mark.parametrize("shop", [Shop(), BlockingShop()], ids=["asgi", "wsgi"])
def test_a_safe_application_passes_every_trial(shop: Shop | BlockingShop) -> None:
    """R42, I1: five intents in the five ways have five effects, on ASGI and on WSGI, asked by a test that blocks."""
    with IdempotentClient(shop.protected()) as client, OneEffect(shop.count, journal=client.journal):
        once, twice, at_once, lost, changed = all_trials(client)
    assert shop.count() == 5
    assert (once, twice, lost, changed) == ([201], [201, 201], [201, 201], [201, 422, 201])
    assert set(at_once) <= {201, 409} and at_once[-1] == 201


def test_within_an_event_loop() -> None:
    """R42, I1: the same for tests that run in asyncio, whose count is awaited."""
    shop = Shop()

    async def trial() -> list[Any]:
        async with (
            AsyncIdempotentClient(shop.protected()) as client,
            OneEffect(shop.acount, journal=client.journal),
        ):
            return [
                await client.twice("/charges", json=CENTS),
                await client.at_once(3, "/charges", json=CENTS),
                await client.lost_answer("/charges", json=CENTS),
                await client.changed("/charges", {"json": {}}, json=CENTS),
            ]

    tried = asyncio.run(trial())
    assert shop.count() == 4
    assert len({one.key for one in tried}) == 4 and tried[0].first.content == tried[0].last.content


def test_a_server_by_its_address() -> None:
    """R42, I1: a server on its port is asked as an application in this process is."""
    shop = BlockingShop()

    class Quiet(WSGIRequestHandler):
        def log_message(self, *what: Any) -> None:
            """It has nothing to say."""

    with make_server("127.0.0.1", 0, shop.protected(), handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with IdempotentClient(f"http://127.0.0.1:{server.server_port}") as client:
                tried = client.lost_answer("/charges", json=CENTS)
        finally:
            server.shutdown()
            thread.join()
    assert shop.count() == 1
    assert tried.last.json() == {"id": 1}


def test_the_application_runs_while_its_client_is_open() -> None:
    """R42: the application is started before the first request and stopped with its client, as a server does it."""
    shop = Shop()
    with IdempotentClient(shop) as client:
        client.once("/charges")
        assert shop.running
    assert not shop.running


def test_an_application_that_does_not_start_says_why() -> None:
    """R42: what an application answers when it cannot start is the test's error, not a first request's."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.failed", "message": "no tables"})

    with pytest.raises(RuntimeError, match="the application failed in its startup: no tables"):
        IdempotentClient(broken).__enter__()


def test_two_effects_are_told_with_all_answers() -> None:
    """R42, I1: where a retry charged again, the message counts the effects and lists what each attempt was told."""
    shop = Shop()
    shop.said = lambda: (201, b'{"ok":true}')
    client = IdempotentClient(shop)
    with client, pytest.raises(EffectsError) as failed, OneEffect(shop.count, journal=client.journal):
        client.twice("/charges", json=CENTS, key=KEY)
    assert shop.count() == 2
    assert str(failed.value) == (
        "1 intent had 2 effects: an attempt that should have been recognised as a duplicate did it again\n\n"
        f'intent 1: POST /charges {{"cents":500}}, key {KEY}\n'
        '  attempt 1: 201 {"ok":true}\n'
        '  attempt 2: 201 {"ok":true}\n'
        "effects: 0 before, 2 after, by Shop.count"
    )


def test_no_effect_is_told_as_such() -> None:
    """R42, I1: a success without its effect fails too: a success alone proves nothing."""
    shop = Shop()
    client = IdempotentClient(shop)
    said = r"1 intent had 0 effects: what was asked for was not done(.|\n)*201"
    with client, pytest.raises(EffectsError, match=said), OneEffect(lambda: 0, journal=client.journal):
        client.once("/charges", json=CENTS)
    assert shop.count() == 1


def test_the_effect_is_graver_than_the_answer() -> None:
    """R42, I1: where answers and effects are both wrong, the effects are told, and the answers are their cause."""
    shop = Shop()
    client = IdempotentClient(shop)
    with client, pytest.raises(EffectsError) as failed, OneEffect(shop.count, journal=client.journal):
        client.twice("/charges", json=CENTS)
    assert shop.count() == 2
    assert isinstance(failed.value.__cause__, IntentBrokenError)


def test_what_the_application_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """R42: an exception that an application answers by 500 is in the log that pytest shows, as in a server's."""

    def broken(environ: Any, start_response: Any) -> Any:
        raise ZeroDivisionError("in WSGI")

    async def abroken(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError("in ASGI")

    for app in (broken, abroken):
        with IdempotentClient(app) as client, pytest.raises(IntentBrokenError, match="attempt 1 was answered 500"):
            client.twice("/charges")
    raised = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert raised == ["in WSGI", "in ASGI"]


def test_requests_get_what_the_lifespan_left() -> None:
    """R42: what an application makes when it starts is in the state of each request, as servers have it."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            scope["state"]["database"] = "opened"
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            seen.append(dict(scope["state"]))
            scope["state"]["mine"] = 1
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body"})

    with IdempotentClient(app) as client:
        client.twice("/")
    assert seen == [{"database": "opened"}] * 2


def test_many_at_once_block_at_once() -> None:
    """R42: as many requests to an application that blocks are within it at one time as the trial wants."""
    meet = threading.Barrier(40, timeout=30)
    shop = BlockingShop()

    def app(environ: Any, start_response: Any) -> Any:
        if not meet.broken and shop.count() == 0:
            meet.wait()
        start_response("200 OK", [])
        return [b""]

    with IdempotentClient(app) as client:
        meeting = threading.Thread(target=lambda: (meet.wait(), shop.charges.append(b"")))
        meeting.start()
        tried = client.at_once(39, "/")
        meeting.join()
    assert len(tried.answers) == 40 and not meet.broken


def test_effects_of_another_number_of_intents() -> None:
    """R42: without a client there is one intent, or as many as the test says."""
    shop = Shop()
    shop.charges = [1, 2]
    with OneEffect(shop.count, intents=2):
        shop.charges += [3, 4]
    with pytest.raises(EffectsError, match="1 intent had 2 effects"), OneEffect(shop.count):
        shop.charges += [5, 6]
    assert shop.count() == 6


def test_an_error_of_the_test_stays_what_it_is() -> None:
    """R42: a test that fails by itself is not told of effects instead."""
    shop = Shop()
    with pytest.raises(ZeroDivisionError), OneEffect(shop.count):  # which is 0, and one too few
        shop.charges += [1, 1 // len(shop.charges)]
    assert shop.count() == 0


BROKEN = {
    "twice": ("attempt 2 got another answer than the one there is: the body", 2),
    "lost_answer": ("attempt 2 got another answer than the one there is: the body", 2),
    "at_once": ("attempt 1 got another answer than the one there is: the body", 3),
    "changed": ("the key was used for another request, and that was not refused", 2),
}
"""What is said of an application that knows nothing of keys, and after how many charges."""


@pytest.mark.parametrize("way", BROKEN)
def test_answers_of_an_unsafe_application(way: str) -> None:
    """R42, I4: an application without protection fails each trial, by a message that names the attempt."""
    shop = Shop()
    said, charged = BROKEN[way]
    given: tuple[Any, ...] = {"at_once": (2, "/charges"), "changed": ("/charges", {"json": {}})}.get(way, ("/charges",))
    with IdempotentClient(shop) as client, pytest.raises(IntentBrokenError, match=re.escape(said)) as failed:
        getattr(client, way)(*given, json=CENTS)
    assert shop.count() == charged
    assert f'\n\nintent 1: POST /charges {{"cents":500}}, key {client.journal[0].key}' in str(failed.value)


def test_a_lost_answer_is_marked_in_the_message() -> None:
    """R42: whoever reads the message sees which answer the client never got."""
    shop = Shop()
    with IdempotentClient(shop) as client, pytest.raises(IntentBrokenError) as failed:
        client.lost_answer("/charges", json=CENTS)
    assert shop.count() == 2
    assert '  attempt 1: 201 {"id":1} (and the answer was lost)\n  attempt 2: 201 {"id":2}' in str(failed.value)


def test_both_of_two_at_the_same_time_run() -> None:
    """R42, I1: attempts at the same time are at the same time: both are within an unsafe application at one moment."""
    shop = Shop()

    async def trial() -> None:
        shop.meet = asyncio.Barrier(2)
        shop.said = lambda: (500, b"")
        async with AsyncIdempotentClient(shop) as client:
            with pytest.raises(IntentBrokenError, match="attempt 3 was answered"):
                await client.at_once(2, "/charges")

    asyncio.run(trial())
    assert shop.count() == 3


def test_a_rival_is_told_to_come_again_or_fails() -> None:
    """R42: an answer of 500 to one of several at once is neither the answer nor a call to come again."""
    shop = Shop()
    shop.said = lambda: (500, b"oh") if len(shop.charges) == 1 else (201, b"done")
    with IdempotentClient(shop) as client, pytest.raises(IntentBrokenError, match="nor told to come again") as failed:
        client.at_once(2, "/charges")
    assert shop.count() == 3
    assert "attempt 1: 500 oh" in str(failed.value)


def test_a_first_attempt_that_fails_proves_nothing() -> None:
    """R42: a trial whose first attempt is refused is no trial, and says so; unless that refusal is what is tried."""
    shop = Shop()
    shop.said = lambda: (402, b"{}")
    with IdempotentClient(shop) as client:
        with pytest.raises(IntentBrokenError, match="attempt 1 was answered 402 and not a success"):
            client.twice("/charges")
        client.twice("/charges", status=402)
    assert shop.count() == 3


def test_headers_of_the_callers_own() -> None:
    """R42: the key goes in the header it is told, and headers of the client and of the intent go with every attempt."""
    seen: list[httpx2.Headers] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        seen.append(httpx2.Headers(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    with IdempotentClient(app, header="X-Key", make_key=lambda: "k-1", headers={"x-user": "ada"}) as client:
        assert client.twice("/", method="PUT", headers={"x-more": "1"}).key == "k-1"
    assert [(one["x-key"], one["x-user"], one["x-more"]) for one in seen] == [("k-1", "ada", "1")] * 2


def test_a_dropped_response_is_an_effect_without_an_answer() -> None:
    """R42, A1: a client that is tested by this transport loses the first answer, after the charge, and no other."""
    shop = Shop()

    async def trial() -> tuple[int, int]:
        dropper = ResponseDropper(shop.protected())
        async with httpx2.AsyncClient(transport=dropper, base_url="http://shop") as client:
            with pytest.raises(httpx2.ReadError, match="lost before the answer had arrived"):
                await client.post("/charges", json=CENTS, headers={"Idempotency-Key": KEY})
            again = await client.post("/charges", json=CENTS, headers={"Idempotency-Key": KEY})
        return dropper.dropped[0].status_code, again.status_code

    statuses = asyncio.run(trial())
    assert shop.count() == 1
    assert statuses == (201, 201)


def test_a_dropped_response_for_a_client_that_blocks() -> None:
    """R42, A1: the same for a blocking client of a WSGI application, as often as it is told."""
    shop = BlockingShop()
    dropper = ResponseDropper(shop.protected(), times=2)
    with httpx2.Client(transport=dropper, base_url="http://shop") as client:
        for _ in range(2):
            with pytest.raises(httpx2.ReadError):
                client.post("/charges", json=CENTS, headers={"Idempotency-Key": KEY})
        assert client.post("/charges", json=CENTS, headers={"Idempotency-Key": KEY}).json() == {"id": 1}
    assert shop.count() == 1 and len(dropper.dropped) == 2


def test_misuse_is_refused() -> None:
    """R42: what cannot be a trial is refused in words: one at once, no application, a client that is not open."""
    with IdempotentClient(Shop()) as client:
        with pytest.raises(ConfigurationError, match="2 attempts at the same time at least"):
            client.at_once(1, "/charges")
        with pytest.raises(ConfigurationError, match="headers do not make it another request"):
            client.changed("/charges", {"headers": {}})
    with pytest.raises(ConfigurationError, match="neither as an ASGI application is nor as a WSGI one"):
        IdempotentClient(lambda: None).__enter__()
    with pytest.raises(ConfigurationError, match="the client is a context"):
        IdempotentClient(Shop()).once("/")
    with pytest.raises(ConfigurationError, match="asked by an httpx2"):
        httpx2.Client(transport=ResponseDropper(Shop())).post("http://shop/")
