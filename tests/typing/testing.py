"""A user's tests with twicesafe's fixtures, for mypy --strict."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from twicesafe.core.message import Message
from twicesafe.demo.provider.fake import FakeProvider
from twicesafe.outbox.relay import Relay
from twicesafe.pytest_plugin import AssertOneEffect, CutAt, MakeAsyncClient, MakeClient
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import FakeBroker, Life, ManualClock
from twicesafe.testing.client import ResponseDropper, Tried


def test_blocking(idempotent_client: MakeClient, assert_one_effect: AssertOneEffect) -> None:
    """An endpoint."""
    client = idempotent_client("http://127.0.0.1:8000", headers={"Authorization": "Bearer x"})
    with assert_one_effect("SELECT count(*) FROM charges", sqlite3.connect("shop.db"), intents=2):
        tried: Tried = client.twice("/charges", json={"cents": 500}, status=201)
        client.changed("/charges", {"json": {}}, json={"cents": 500})
    assert tried.last.json() == tried.first.json()


async def test_asynchronous(async_idempotent_client: MakeAsyncClient, assert_one_effect: AssertOneEffect) -> None:
    """The same for asyncio."""

    async def count() -> int:
        return 1

    async with async_idempotent_client("http://127.0.0.1:8000") as client, assert_one_effect(count):
        tried: Tried = await client.at_once(3, "/charges")
    assert len(tried.answers) == 4


async def test_a_worker(cut_at: CutAt, fake_provider: FakeProvider, manual_clock: ManualClock) -> None:
    """A worker, either way."""
    store = SqliteStore("shop.db", clock=manual_clock)

    def trial(life: Life) -> None:
        charge: Callable[[str], int] = life.function(len)
        with life:
            charge("o")
            life.store(store).purge()
        manual_clock.advance(timedelta(seconds=31))

    async def atrial(life: Life) -> None:
        trial(life)

    runs: int = cut_at(trial) + await cut_at(atrial)
    assert runs and fake_provider.count() == len(fake_provider.charges())


def test_messages(fake_broker: FakeBroker, drop_response: Callable[..., ResponseDropper]) -> None:
    """A relay and a consumer."""

    def on_message(message: Message) -> str:
        return message.id

    fake_broker.arm("lost", times=2)
    relay = Relay(AsyncSqliteStore("shop.db"), fake_broker)
    assert relay.counted is None and fake_broker.deliver(on_message) == 0
    dropped: list[Any] = drop_response("http://127.0.0.1:8000").dropped
    assert not dropped
