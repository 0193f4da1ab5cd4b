"""Hints: what wakes a relay that pauses, in its own process and from another, and what is known of what waits."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import new_id
from tests.messages.relaying import EACH, STORES, Rig, rigged, trial
from twicesafe import worker as working
from twicesafe.core.message import Message
from twicesafe.errors import ConfigurationError, RefusedError
from twicesafe.outbox import relay as relaying
from twicesafe.outbox.relay import Relay, Waiting
from twicesafe.stores import postgresql_notices
from twicesafe.stores.postgresql import CHANNEL
from twicesafe.stores.psycopg import AsyncPsycopgStore, PsycopgStore
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.worker import Worker


class Paused:
    """A worker whose relay would look once in an hour, by itself."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        monkeypatch.setattr(working, "RELAY_EVERY", 3600.0)
        self.arrived: asyncio.Queue[str] = asyncio.Queue()

        async def publish(message: Message) -> None:
            await self.arrived.put(message.id)

        self.relay = Relay(rig.store, publish, **options)
        self.worker = Worker(self.relay, every=timedelta(hours=1))
        self._rig = rig

    async def __aenter__(self) -> Paused:
        (first,) = await self._rig.add(new_id())
        self._task = asyncio.create_task(self.worker.run())
        assert await self.next() == first
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.worker.stop()
        await self._task

    async def next(self) -> str:
        """What arrives next."""
        async with asyncio.timeout(60):
            return await self.arrived.get()


def test_a_hint_wakes_the_relay(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: a hint after the commit, from whatever thread, has the message delivered though the relay pauses."""

    async def run() -> None:
        async with rigged(databases, "sqlite") as rig, Paused(rig, monkeypatch) as paused:
            for hint in (paused.relay.hint, lambda: threading.Thread(target=paused.relay.hint).start()):
                (added,) = await rig.add(new_id())
                hint()
                assert await paused.next() == added

    trial(run)


@pytest.mark.parametrize("listening", [None, AsyncPsycopgStore], ids=["asyncpg", "psycopg"])
def test_a_hint_reaches_other_processes(databases: Databases, monkeypatch: pytest.MonkeyPatch, listening: Any) -> None:
    """R28: on PostgreSQL a hint wakes relays on other stores; one that lost its connection looks once it is back."""
    monkeypatch.setattr(postgresql_notices, "LOOK", 0.05)
    monkeypatch.setattr(relaying, "LISTEN_AGAIN", 0.05)

    async def run() -> None:
        async with rigged(databases, "postgresql") as rig:
            writing = STORES["postgresql"][1](rig.database)
            blocking = PsycopgStore(rig.database.where)
            if listening is not None:
                await rig.store.aclose()
                rig.store = listening(rig.database.where)
            async with Paused(rig, monkeypatch, listens=True) as paused:
                heard = asyncio.Event()
                paused.relay.on_hint(heard.set)
                async with asyncio.timeout(60):
                    while not heard.is_set():
                        await writing.hint()
                        await asyncio.sleep(0)
                (added,) = await rig.add(new_id())
                await writing.hint()
                assert await paused.next() == added
                (added,) = await rig.add(new_id())
                await asyncio.to_thread(blocking.hint)
                assert await paused.next() == added
                (added,) = await rig.add(new_id())
                lost = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query IN ('SELECT 1', 'LISTEN {}')"
                assert rig.database.ask(lost.format(CHANNEL)) and await paused.next() == added
            if listening is not None:
                await rig.store.aclose()
            await writing.aclose()
            blocking.close()

    trial(run)


def test_a_hint_needs_no_server() -> None:
    """R28: a hint that reaches nobody is no failure of whoever gives it."""
    store = PsycopgStore("postgresql://nobody@127.0.0.1:9/nowhere", timeout=timedelta(seconds=1))
    store.hint()
    store.close()
    with pytest.raises(ConfigurationError, match="listens"):
        Relay(AsyncSqliteStore("never-opened.db"), print, listens=True)


@EACH
def test_what_waits_can_be_alarmed_on(databases: Databases, dialect: str) -> None:
    """R44: how much waits, and for how long the oldest has, is told by the relay and by the health of its worker."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            relay = rig.relay()
            assert await relay.waiting() == Waiting(0, None, 0)
            worker = Worker(relay)
            assert worker.health()[0].pending is None
            bad = new_id()
            await rig.add(bad, bad)
            rig.database.ask("UPDATE twicesafe_outbox SET created_at = created_at - 60000000")
            rig.receiver.failing[bad] = RefusedError("no")
            await relay.run_once()
            (health,) = worker.health()
            assert (health.pending, health.parked) == (1, 1)
            assert health.oldest is not None and 60 <= health.oldest < 3600
            waiting = await relay.waiting()
            assert (waiting.pending, waiting.parked) == (1, 1)
            assert waiting.oldest_us is not None and waiting.oldest_us >= 60_000_000

    trial(run)
