"""aiohttp: what it does by itself, and what is proved about it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from tests.client.bindings import QUICK, Hours
from tests.client.scripted import Act, Scripted, answer, drip, redirect, reset_after_commit, serving
from twicesafe.client import (
    BodyNotRepeatableError,
    Budgets,
    Contract,
    FailureKind,
    Intent,
    Outcome,
    Rejected,
    Sent,
    Stop,
    Succeeded,
    Unknown,
    report_of,
)
from twicesafe.client.aiohttp import Request, RetryMiddleware, asend
from twicesafe.client.watching import Watch
from twicesafe.errors import ConfigurationError

Story = Callable[[Scripted, Any], Awaitable[None]]


def played(story: Story, *acts: Act, **session: Any) -> None:
    """Tell a story with a server that plays `acts`, and a session."""

    async def main(server: Scripted) -> None:
        async with aiohttp.ClientSession(**session) as client:
            await story(server, client)

    with serving(*acts) as server:
        asyncio.run(main(server))


async def sent(session: Any, what: Any, hours: Hours | None = None, **how: Any) -> Outcome[Any]:
    ambient = (hours or Hours()).async_ambient
    return await asend(session, what, **{"policy": QUICK, "budgets": Budgets(), "ambient": ambient, **how})


def middleware(hours: Hours | None = None, **how: Any) -> RetryMiddleware:
    ambient = (hours or Hours()).async_ambient
    return RetryMiddleware(**{"policy": QUICK, "budgets": Budgets(), "ambient": ambient, **how})


# --- one layer -------------------------------------------------------------------------------------------------------


def test_aiohttps_own_retry_is_switched_off() -> None:
    """K: alone it sends a PUT twice where the connection breaks; here three attempts are three hits, not six."""
    three = QUICK.but(attempts=3)

    async def story(server: Scripted, session: Any) -> None:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.put(server.origin)
        assert len(server.hits) == 2, "what has to be switched off is still there"
        outcome = await sent(session, Intent.new("PUT", server.origin), policy=three)
        assert len(server.hits) == 5
        with pytest.raises(aiohttp.ClientError) as caught:
            await session.put(server.origin, middlewares=[middleware(policy=three)])
        assert len(server.hits) == 8
        assert isinstance(outcome, Unknown) and outcome.stop is Stop.ATTEMPTS
        assert len(report_of(caught.value).attempts) == 3

    played(story, *[_closed] * 8)


def _closed(exchange: Any) -> None:
    exchange.read()


def test_the_second_failure_of_a_session_is_a_new_one() -> None:
    """K: what was given up in one call is not what the next one gets, in the same task and for the same request."""

    async def story(server: Scripted, session: Any) -> None:
        for _ in range(2):
            with pytest.raises(aiohttp.ClientError):
                await session.put(server.origin, middlewares=[middleware(policy=QUICK.but(attempts=1))])
        async with session.put(server.origin, middlewares=[middleware()]) as response:
            assert response.status == 200
        assert len(server.hits) == 3

    played(story, _closed, _closed, answer(200))


def test_middlewares_in_a_row_and_asend_retry_as_one() -> None:
    """K: two of them are one layer, and so is `asend()` through a session that has them."""
    three = QUICK.but(attempts=3)
    twice = [middleware(policy=three), middleware(policy=three)]

    async def story(server: Scripted, session: Any) -> None:
        await session.put(server.origin)
        assert len(server.hits) == 3
        await sent(session, Intent.new("PUT", server.origin), policy=three)
        assert [hit.attempt for hit in server.hits] == ["1", "2", "3"] * 2

    played(story, *[answer(503)] * 6, middlewares=twice)


def test_a_layer_above_may_ask_again() -> None:
    """R40: a middleware above that answers a challenge, or that tries again, asks the same operation anew."""
    above: list[int] = []

    async def signing_in(request: Any, handler: Any) -> Any:
        response = await handler(request)
        above.append(response.status)
        return await handler(request) if response.status == 401 else response

    async def story(server: Scripted, session: Any) -> None:
        async with session.put(server.origin) as response:
            assert response.status == 200
        assert len(server.hits) == 4

    acts = (answer(503), answer(401), _closed, answer(200))
    played(story, *acts, middlewares=[signing_in, middleware()])
    assert above == [401]


@pytest.mark.parametrize("through", ["asend", "middleware"])
def test_whoever_watches_is_told(through: str) -> None:
    """R40: each attempt and the end; and the attempts carry their operation's id and how many there may be."""
    told: list[str] = []
    watch = Watch(observer=lambda event: told.append(event.name))

    async def story(server: Scripted, session: Any) -> None:
        if through == "asend":
            await sent(session, Intent.new("PUT", server.origin, json=1), watch=watch)
        else:
            await session.put(server.origin, json=1, middlewares=[middleware(watch=watch)])
        assert {hit.header("twicesafe-attempt-limit") for hit in server.hits} == {"4"}
        assert len({hit.header("twicesafe-operation") for hit in server.hits} - {None}) == 1

    played(story, reset_after_commit, answer(200))
    assert told == ["attempt.ended", "attempt.ended", "operation.succeeded"]


# --- proof -----------------------------------------------------------------------------------------------------------


def test_a_proxy_that_opens_no_tunnel_proves_that_nothing_was_sent() -> None:
    """R35: the proxy was asked for a tunnel; of the operation itself not one byte left, so it may be tried again."""

    async def story(server: Scripted, session: Any) -> None:
        never = Request("POST", "https://pay.example/charges", json=1, proxy=server.origin)
        outcome = await sent(session, never, policy=QUICK.but(attempts=2))
        assert [(hit.method, hit.key) for hit in server.hits] == [("CONNECT", None)] * 2
        assert isinstance(outcome, Unknown) and outcome.sent is Sent.NO
        assert outcome.attempts[0].failure is FailureKind.CONNECT

    played(story, answer(502), answer(502))


def test_a_connector_without_a_free_connection_sends_nothing() -> None:
    """R35: who waited for a connection in vain sent nothing, and may wait again."""

    async def main(server: Scripted) -> Outcome[Any]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
            busy = await session.get(server.origin)
            soon = QUICK.but(attempt_timeout=timedelta(seconds=0.7))
            return await sent(session, Request("POST", server.origin), Hours(asleep=busy.close), policy=soon)

    with serving(drip, answer(201)) as server:
        outcome = asyncio.run(main(server))
        assert [hit.method for hit in server.hits] == ["GET", "POST"]
    assert isinstance(outcome, Succeeded)
    assert [attempt.sent for attempt in outcome.attempts] == [Sent.NO, Sent.YES]


def test_what_traces_nothing_proves_nothing() -> None:
    """R35: a middleware that stands in for the network may have sent; what is never repeated is not."""
    calls: list[Any] = []

    async def lost(request: Any, handler: Any) -> Any:
        calls.append(request)
        raise aiohttp.ClientConnectionError("so it says")

    async def story(server: Scripted, session: Any) -> None:
        never = await sent(session, Request("POST", server.origin))
        assert len(calls) == 1
        keyed = await sent(session, Intent.new("POST", server.origin))
        assert len(calls) == 5
        assert isinstance(never, Unknown) and (never.sent, never.stop) == (Sent.MAYBE, Stop.NOT_REPEATABLE)
        assert isinstance(keyed, Unknown) and keyed.sent is Sent.MAYBE

    played(story, middlewares=[lost])


def test_the_sessions_own_traces_are_still_called() -> None:
    """R40: to hear how far a request got takes nothing from whoever listened before."""
    heard: list[str] = []

    async def headers_sent(session: Any, context: Any, params: Any) -> None:
        heard.append(params.headers["Twicesafe-Attempt"])

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(headers_sent)

    async def story(server: Scripted, session: Any) -> None:
        await sent(session, Intent.new("PUT", server.origin))

    played(story, reset_after_commit, answer(200), trace_configs=[trace])
    assert heard == ["1", "2"]


# --- within a session ------------------------------------------------------------------------------------------------


def test_an_error_that_was_judged_can_still_be_read() -> None:
    """R36: a middleware that looked into an error's body hands it on as if it had not."""
    document = {"type": "about:blank", "title": "No."}

    async def story(server: Scripted, session: Any) -> None:
        async with session.post(server.origin) as response:
            assert await response.json() == document
            body = await response.read()
        async with session.post(server.origin) as response:
            assert b"".join([piece async for piece in response.content.iter_chunked(7)]) == body
        async with session.post(server.origin) as response:
            assert await response.content.read() == body

    played(story, *[answer(402, json_=document)] * 3, middlewares=[middleware()])


def test_a_session_counts_as_it_was_made() -> None:
    """R40: its address, headers, cookies, middlewares and raise_for_status; the last has no say in an outcome."""
    seen: list[int] = []

    async def noting(request: Any, handler: Any) -> Any:
        response = await handler(request)
        seen.append(response.status)
        return response

    async def story(server: Scripted, _: Any) -> None:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(
            f"{server.origin}/v1/",
            headers={"X-Shop": "1"},
            cookie_jar=jar,
            middlewares=[noting],
            raise_for_status=True,
        ) as session:
            outcome = await sent(session, Intent.new("POST", "charges", json=1))
            assert isinstance(outcome, Rejected) and await outcome.response.json() == {"no": 1}
            assert [cookie.value for cookie in jar] == ["1"]
        assert {(hit.target, hit.header("x-shop")) for hit in server.hits} == {("/v1/charges", "1")}

    played(story, answer(429), answer(402, "Set-Cookie: a=1", json_={"no": 1}))
    assert seen == [429, 402]


def test_a_form_with_a_file_is_the_same_form_again() -> None:
    """I8, K: the boundary, too, is that of the first attempt; and the file is read from where it stood."""

    def form() -> aiohttp.FormData:
        file = io.BytesIO(b"0123456789what is left")
        file.seek(10)
        made = aiohttp.FormData()
        made.add_field("upload", file, filename="u.bin")
        return made

    async def story(server: Scripted, session: Any) -> None:
        headers = {"Idempotency-Key": "k-1"}
        await sent(session, Request("POST", server.origin, data=form(), headers=headers))
        async with session.post(server.origin, data=form(), headers=headers, middlewares=[middleware()]) as response:
            assert response.status == 200
        for first, second in (server.hits[:2], server.hits[2:]):
            assert first.body == second.body and b"what is left" in first.body and b"0123" not in first.body
            assert first.header("content-type") == second.header("content-type")

    played(story, *[answer(503), answer(200)] * 2)


def test_a_body_that_was_read_halfway_is_not_sent_as_another() -> None:
    """I1: a body whose reading outlasts the first attempt is no body: what is left of it is never sent, nor nothing."""

    async def slow() -> AsyncIterator[bytes]:
        yield b"first half, "
        await asyncio.Event().wait()
        yield b"second half"

    async def story(server: Scripted, session: Any) -> None:
        what = Request("POST", server.origin, data=slow(), headers={"Idempotency-Key": "k-1"})
        with pytest.raises(BodyNotRepeatableError) as caught:
            await sent(session, what, policy=QUICK.but(attempt_timeout=timedelta(milliseconds=30)))
        assert server.hits == []
        report = report_of(caught.value)
        assert report is not None and (report.key, report.attempts) == ("k-1", ())

    played(story)


def test_large_bodies_go_out_piece_by_piece() -> None:
    """I8: aiohttp warns of large bodies in one piece, and such warnings are errors here."""
    body = b"x" * (2**20 + 1)

    async def story(server: Scripted, session: Any) -> None:
        await sent(session, Intent.new("POST", server.origin, content=body))
        data = io.BytesIO(body)
        async with session.put(server.origin, data=data, middlewares=[middleware()]) as response:
            assert response.status == 200
        assert [hit.body == body for hit in server.hits] == [True] * 4

    played(story, *[answer(503), answer(200)] * 2)


def test_the_contract_can_be_said_with_a_request() -> None:
    """R36: a POST that only searches is safe because its caller says so, call by call."""

    async def story(server: Scripted, session: Any) -> None:
        searched = await sent(session, Request("POST", server.origin, contract=Contract.SAFE))
        assert isinstance(searched, Succeeded)
        safe = middleware(contract=Contract.SAFE)
        async with session.post(server.origin, middlewares=[safe]) as response:
            assert response.status == 200
        async with session.get(server.origin, middlewares=[middleware(contract=Contract.NEVER)]) as response:
            assert response.status == 503
        assert len(server.hits) == 5

    played(story, *[answer(503), answer(200)] * 2, answer(503))


def test_a_redirect_that_is_not_followed_can_be_read() -> None:
    """I8, K: the answer that leads elsewhere is whole, with the way it came."""

    async def story(server: Scripted, session: Any) -> None:
        outcome = await sent(session, Intent.new("POST", server.origin, json=1))
        assert isinstance(outcome, Rejected)
        assert (outcome.response.status, await outcome.response.read()) == (307, b"")
        assert [hop.status for hop in outcome.response.history] == [308]
        assert len(server.hits) == 2

    played(story, redirect(308, "/v2"), redirect(307, "http://pay.example/v2"))


@pytest.mark.parametrize("through", ["asend", "middleware"])
def test_cancellation_passes_through(through: str) -> None:
    """R36, I8: a task that is cancelled while it waits for the answer ends at once; the intent can be sent again."""
    arrived: list[Callable[[], object]] = []

    def noticed(exchange: Any) -> None:
        exchange.read()
        arrived[0]()
        exchange.wait_until_left()

    async def story(server: Scripted, session: Any) -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        arrived.append(lambda: loop.call_soon_threadsafe(event.set))
        intent = Intent.new("POST", server.origin, json=1)
        headers = {"Idempotency-Key": intent.key}

        async def attempt() -> Any:
            if through == "asend":
                return (await sent(session, intent)).response
            return await session.post(intent.url, data=b"1", headers=headers, middlewares=[middleware()])

        task = asyncio.create_task(attempt())
        await event.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert report_of(caught.value).key == intent.key
        assert (await attempt()).status == 201
        assert [hit.key for hit in server.hits] == [intent.key] * 2

    played(story, noticed, answer(201))


def test_an_unusable_request_is_no_outcome() -> None:
    """R35: what the library itself refuses to send is raised as it is, once, with the key on it."""

    async def story(server: Scripted, session: Any) -> None:
        for url in ("gopher://x.example", "http://"):
            intent = Intent.new("POST", url, json=1)
            with pytest.raises((aiohttp.NonHttpUrlClientError, aiohttp.InvalidURL)) as caught:
                await sent(session, intent)
            assert report_of(caught.value).key == intent.key

    played(story)


def test_what_is_not_a_session_is_refused() -> None:
    """House: a mistake in the wiring is said at once."""
    with pytest.raises(ConfigurationError):
        asyncio.run(asend(object(), Intent.new("POST", "http://x.example")))
