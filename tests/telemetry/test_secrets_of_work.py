"""Functions, operations, workers and messages are told of without what they are about."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import twicesafe_within
from tests.telemetry.searched import ANSWER, BODY, KEY, MARK, PASSWORD, Caused, Searched, by_a_driver, planted
from twicesafe import Policy
from twicesafe.core.message import Message
from twicesafe.errors import (
    NotDeliveredError,
    RefusedError,
    TwicesafeError,
)
from twicesafe.inbox import Inbox
from twicesafe.once import AsyncOnce, Once, current
from twicesafe.outbox import DeliveryPolicy, Outbox
from twicesafe.outbox.operators import Messages, MessageState
from twicesafe.outbox.relay import Relay
from twicesafe.publishers.webhooks import WebhookPublisher
from twicesafe.reaper import Reaper
from twicesafe.receiving import WebhookReceiver
from twicesafe.reconcile import Reconcilers
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import ManualClock
from twicesafe.worker import Worker

SIGNING = "whsec_" + base64.b64encode(planted("signing").encode()).decode()


def test_functions_and_workers(searched: Searched, tmp_path: Path) -> None:
    """R22: arguments, results, derived keys and what functions, calls and reconcilers raise are told to nobody."""
    clock = ManualClock()
    store = SqliteStore(tmp_path / "shop.db", clock=clock)
    store.apply_schema()
    once = Once(store, scope=planted("tenant"), observer=searched)
    unknown = Once(store, scope=planted("tenant"), policy=Policy(unknown_on_error=True), observer=searched)

    def works(card: str) -> str:
        return ANSWER

    def fails(card: str) -> str:
        raise Caused

    class Opaque:
        def __repr__(self) -> str:
            return ANSWER

    def gives(card: str) -> Any:
        return Opaque()

    @once.operation(key=lambda card: planted("order"), name="buy", effects="resumable")
    def buy(card: str) -> str:
        at = current()
        at.phase("reserve", lambda connection, what: ANSWER, card)
        return at.call("charge", _calling, card)

    for call, key, function, card in [
        (once, KEY, works, BODY), (once, KEY, works, BODY), (once, KEY, works, BODY + "2"),
        (once, KEY + "-2", fails, BODY), (once, KEY + "-2", fails, BODY), (once, KEY + "-3", gives, BODY),
        (once, KEY + "-3", gives, BODY),
        (unknown, KEY + "-4", fails, BODY), (unknown, KEY + "-4", fails, BODY), (once, KEY * 9, works, BODY),
        (once, KEY + "-5", works, Opaque()),
    ]:  # fmt: skip
        _tried(searched, lambda call=call, key=key, function=function, card=card: call(key, function, card))
    _tried(searched, lambda: buy(BODY))
    for _ in range(3):
        clock.advance(timedelta(hours=1))
        once.resume()
        _tried(searched, lambda: buy(BODY))
    reconcilers = Reconcilers(store, observer=searched)
    for name in ("buy", "test_functions_and_workers.<locals>.fails"):
        with suppress(TwicesafeError):
            reconcilers.of(name)(_raises)
    reconcilers.run_once()
    clock.advance(timedelta(days=3))
    Reaper(store, pause=timedelta(0), observer=searched).run_once()
    store.close()


def _calling(key: str, card: str) -> str:
    raise Caused


def _raises(unknown: Any) -> Any:
    raise Caused


def _tried(searched: Searched, call: Callable[[], object]) -> None:
    try:
        call()
    except TwicesafeError as error:
        searched.error("a function", error)
    except Caused:
        pass


def test_a_worker_whose_parts_raise(searched: Searched, capfd: pytest.CaptureFixture[str]) -> None:
    """R22: whatever a part of a worker raises is told by its class, on the terminal of `twicesafe worker`, too."""
    from twicesafe.cli.worker import _tell

    class Raising(AsyncMemoryStore):
        async def outstanding(self, after: object = None, look_at: int = 1) -> Any:
            raise Caused

    async def trial() -> None:
        worker: Worker

        def observer(event: Any) -> None:
            searched(event)
            _tell(event)
            worker.stop()

        worker = Worker(AsyncOnce(Raising(), scope="shop"), every=timedelta(microseconds=1), observer=observer)
        async with asyncio.timeout(30):
            await worker.run()

    asyncio.run(trial())
    searched.saw("the terminal", "".join(capfd.readouterr()))


def test_messages(searched: Searched, tmp_path: Path) -> None:
    """R22: data, headers and ids of messages, and what publishers raise, reach no log, span or operator."""
    where = tmp_path / "shop.db"
    with closing(SqliteStore(where)) as store:
        store.apply_schema()
    outbox = Outbox("/orders")
    failures: list[Any] = [
        Caused(),
        RefusedError("no such queue"),
        NotDeliveredError("busy"),
        by_a_driver(NotDeliveredError("x")),
    ]
    with closing(sqlite3.connect(where, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for number in range(len(failures)):
            outbox.add(
                connection, "order.placed", ("order", str(number)), {"card": BODY}, headers={"card": planted("line")}
            )
        for wrong in (
            {"data": object()},
            {"data": BODY.encode() * 99_999},
            {"headers": {"Card!": BODY}},
            {"subject": f"{BODY}\n"},
        ):
            with pytest.raises(TwicesafeError) as refused:
                outbox.add(connection, "order.placed", ("order", "o"), **{"data": {}, **wrong})
            searched.error("the outbox", refused.value)
        connection.execute("COMMIT")

    async def publish(message: Message) -> None:
        raise failures[int(message.aggregateid)]

    async def trial() -> None:
        records = AsyncSqliteStore(where)
        relay = Relay(records, publish, policy=DeliveryPolicy(attempts=1), observer=searched)
        await relay.run_once()
        await relay.aclose()
        await records.aclose()

    asyncio.run(trial())
    with closing(SqliteStore(where)) as store:
        listed = list(Messages(store).listed(MessageState.PARKED))
    assert len(listed) == len(failures)
    searched.saw("what operators see", listed)
    for arguments in (("list",), ("list", "--json"), ("show", listed[0].id), ("retry", "--parked", "--why", "mended")):
        ran = twicesafe_within("outbox", arguments[0], "--store", f"sqlite:///{where}", *arguments[1:])
        assert ran.status == 0, ran.err
        searched.saw("twicesafe outbox", ran.out + ran.err)


def test_webhooks(searched: Searched, tmp_path: Path) -> None:
    """R22: neither the secret that signs nor a URL's credentials nor what is signed is in an error, answer or log."""
    message = Message(planted("id"), "/orders", "order.placed", "order", "o-1", BODY.encode())

    async def trial(url: str) -> None:
        made = WebhookPublisher(url, secrets=SIGNING, headers={"authorization": planted("token")})
        try:
            await made.publish(message)
        except (TwicesafeError, RefusedError) as error:
            searched.error("a webhook", error)
        finally:
            await made.aclose()

    for url in (
        f"http://ada:{PASSWORD}@127.0.0.1:1/{planted('path')}",
        f"http://127.0.0.1:1/?code={PASSWORD}",
        f"ftp://{PASSWORD}",
    ):
        asyncio.run(trial(url))
    for secret in (planted("no-secret"), "whsec_" + MARK, ""):
        with pytest.raises(TwicesafeError) as refused:
            WebhookPublisher("http://127.0.0.1:1", secrets=secret)
        searched.error("a webhook's settings", refused.value)

    path = tmp_path / "books.db"
    with closing(SqliteStore(path)) as store:
        store.apply_schema()

    def handle(connection: Any, got: Message) -> None:
        raise Caused

    receiver = WebhookReceiver(
        Inbox("billing", observer=searched), secrets=SIGNING, source="/orders",
        begin=lambda: sqlite3.connect(path), handle=handle, clock=lambda: 1_800_000_000.0,
    )  # fmt: skip
    for headers in (
        {}, {"webhook-id": planted("id"), "webhook-timestamp": "1800000000", "webhook-signature": f"v1,{planted('x')}"},
        {"webhook-id": planted("id"), "webhook-timestamp": planted("time"), "webhook-signature": "v1,x"},
    ):  # fmt: skip
        got = receiver.receive(headers, BODY.encode())
        assert got.status in (400, 401)
        searched.saw("an answer to a webhook", f"{got.body!r} {got.headers}")
