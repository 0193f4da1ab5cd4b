"""Both halves together: the client, twicesafe's own server under uvicorn, and one effect."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import uvicorn

from tests.client.bindings import QUICK, Binding, Hours
from twicesafe.asgi import PUBLIC, IdempotencyMiddleware
from twicesafe.client import Intent, Rejected, Sent, Succeeded, Unknown
from twicesafe.stores.memory import AsyncMemoryStore


class Ledger:
    """The application: each run appends a row. `/slow` answers when it is let go, `/broken` raises after its effect."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.done = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._go = asyncio.Event()

    def let_go(self) -> None:
        """Let `/slow` finish, and wait until it has."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._go.set)
        assert self.done.wait(10)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._loop = asyncio.get_running_loop()
        message = await receive()
        self.rows.append(json.loads(message["body"]))
        if scope["path"] == "/slow":
            await self._go.wait()
        if scope["path"] == "/broken":
            raise LookupError("after the effect")
        self.done.set()
        body = b'{"charge":%d}' % len(self.rows)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def shop() -> Iterator[tuple[Ledger, str]]:
    """The application behind twicesafe, on a free port."""
    ledger = Ledger()
    app = IdempotencyMiddleware(ledger, AsyncMemoryStore(), scope=PUBLIC)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False, ws="none", http="h11")
    )
    started = threading.Event()
    startup = server.startup

    async def noted(sockets: Any = None) -> None:
        await startup(sockets)
        started.set()

    server.startup = noted
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield ledger, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def test_an_attempt_that_is_at_work_is_waited_for(binding: Binding) -> None:
    """R36, R42, K: the client gives up on an attempt, is told "in progress", waits, and gets that attempt's answer."""
    with shop() as (ledger, origin):
        hours = Hours(asleep=lambda: ledger.let_go() if len(hours.waits) == 2 else None)
        intent = Intent.new("POST", f"{origin}/slow", json={"amount": 100})
        policy = QUICK.but(attempt_timeout=timedelta(seconds=1))
        result = binding.perform(lambda client: intent, hours, policy)
        assert ledger.rows == [{"amount": 100}]
    assert result.response.json() == {"charge": 1}
    assert result.response.headers["idempotent-replayed"] == "true"
    assert [attempt.reason for attempt in result.report.attempts[:2]] == ["timeout", "409 in progress"]
    assert hours.waits[1] >= 1.0
    if binding.typed:
        assert isinstance(result.outcome, Succeeded) and result.outcome.replayed


def test_an_intent_that_is_sent_again_happens_once(typed: Binding) -> None:
    """I8, R33: asked again by another client with the same intent: the first answer; with another body: unknown."""
    with shop() as (ledger, origin):
        intent = Intent.derived("charge", "cart-17", url=f"{origin}/charge", json={"amount": 100})
        first = typed.perform(lambda client: intent, Hours(), QUICK)
        again = typed.perform(lambda client: intent, Hours(), QUICK)
        edited = Intent.derived("charge", "cart-17", url=f"{origin}/charge", json={"amount": 1})
        refused = typed.perform(lambda client: edited, Hours(), QUICK)
        assert ledger.rows == [{"amount": 100}]
    assert (first.outcome.replayed, again.outcome.replayed) == (False, True)
    assert first.response.json() == again.response.json() == {"charge": 1}
    assert isinstance(refused.outcome, Unknown) and refused.response.status_code == 422
    assert len(refused.outcome.attempts) == 1


def test_a_recorded_failure_is_told_once_and_for_all(typed: Binding) -> None:
    """R16, R37: the handler failed after its effect: no retry, not now and not under the same key later."""
    with shop() as (ledger, origin):
        intent = Intent.new("POST", f"{origin}/broken", json={"amount": 100})
        first = typed.perform(lambda client: intent, Hours(), QUICK)
        again = typed.perform(lambda client: intent, Hours(), QUICK)
        assert ledger.rows == [{"amount": 100}]
    assert [type(result.outcome) for result in (first, again)] == [Rejected] * 2
    assert [result.response.status_code for result in (first, again)] == [500] * 2
    assert [len(result.outcome.attempts) for result in (first, again)] == [1, 1]
    assert first.outcome.attempts[0].sent is Sent.YES and again.outcome.replayed
