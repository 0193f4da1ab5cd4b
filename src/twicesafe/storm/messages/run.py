"""One storm of messages from beginning to end: set up, write and break, wait until all has arrived, count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.urls import open_async_store
from twicesafe.storm.databases import SqliteFile, database
from twicesafe.storm.fleet import Fleet, preload
from twicesafe.storm.messages import census
from twicesafe.storm.messages.books import ConsumerBooks, SenderBooks
from twicesafe.storm.messages.census import Findings
from twicesafe.storm.messages.way import Way
from twicesafe.storm.messages.ways import way_to
from twicesafe.storm.messages.writers import Writer, aggregates, draw

CONSUMER_EVERY: Final = 5
"""The consumer is killed once for so many relays."""
LOOK: Final = 0.5
"""Seconds between two looks at what has arrived."""
STILL: Final = 3.0
"""Seconds for which nothing more comes when all has arrived: longer than a broker waits for an acknowledgement."""
PATIENCE: Final = 300.0
"""Seconds for which nothing may come before it is given up: many leases, and a broker's start on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is asked for. `store` is `sqlite`, `postgresql` or `mysql`, and `to` one of WAYS."""

    store: str
    to: str
    messages: int
    seed: int
    writers: int = 8
    relays: int = 4
    kill_every: float = 1.0
    """Seconds between two SIGKILLs of relays."""
    kills: int | None = None
    """How many SIGKILLs of relays at most. None: until all has arrived."""
    restarts: int = 2


class Report(NamedTuple):
    """What came of it."""

    findings: Findings
    rolled_back: int
    kills: int
    """Relays that SIGKILL ended."""
    consumer_kills: int
    restarts: int
    settings: Settings
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether all holds, and was put to the test."""
        return self.findings.clean and self.kills > 0 and self.restarts == self.settings.restarts

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        asked = self.settings
        return {
            **self.findings._asdict(), "rolled_back": self.rolled_back, "kills": self.kills,
            "consumer_kills": self.consumer_kills, "restarts": self.restarts, "store": asked.store, "to": asked.to,
            "writers": asked.writers, "relays": asked.relays, "seed": asked.seed, "seconds": self.seconds,
        }  # fmt: skip


async def run(settings: Settings) -> Report:
    """Run it. StormError or another TwicesafeError where it cannot be run.

    Whatever it started has ended when this returns or raises, cancelled or not.
    """
    began = time.monotonic()
    opened = way_to(settings.to).opened
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="twicesafe-storm-", ignore_cleanup_errors=True)))
        base = await stack.enter_async_context(database(settings.store, folder, settings.relays + 2))
        # A service of its own: in a file, one file's single writer is not everybody's.
        consumers = f"sqlite:///{folder / 'consumer.sqlite3'}" if isinstance(base, SqliteFile) else base.url

        async def store_at(url: str) -> AsyncStore:
            store = open_async_store(url)
            stack.push_async_callback(store.aclose)
            return store

        sender = SenderBooks(sending := await store_at(base.url))
        consumer = ConsumerBooks(receiving := await store_at(consumers))
        for store in (sending, receiving):
            await store.apply_schema()
        await sender.create(aggregates(settings.messages))
        await consumer.create()
        way: Way = await stack.enter_async_context(opened())
        told = {"store": base.url, "books": consumers, "way": way.told}
        log = folder / "processes.log"
        relays = Fleet(settings.relays, told, log, kind="messages.relay")
        stack.push_async_callback(relays.close)
        reader = Fleet(1, told, log, kind="messages.consumer")
        stack.push_async_callback(reader.close)
        await asyncio.to_thread(preload, "messages.relay", "messages.consumer")
        await asyncio.gather(relays.start(), reader.start())
        storm = _Storm(settings, way, relays, reader, sender, consumer)
        writers = [Writer(await store_at(base.url), storm.written) for _ in range(settings.writers)]
        try:
            await storm.to_the_end(writers)
        except ExceptionGroup as failed:
            raise _first(failed) from failed
        findings = census.take(await sender.sent(), await consumer.deliveries(), await consumer.effects())
        return Report(
            findings=findings,
            rolled_back=sum(writer.rolled_back for writer in writers),
            kills=relays.deaths.total(),
            consumer_kills=reader.deaths.total(),
            restarts=storm.restarts,
            settings=settings,
            seconds=round(time.monotonic() - began, 2),
        )


class _Storm:
    """Writers, and blows meanwhile: relays are killed as time goes by, and the broker is restarted as work does."""

    def __init__(
        self,
        settings: Settings,
        way: Way,
        relays: Fleet,
        reader: Fleet,
        sender: SenderBooks,
        consumer: ConsumerBooks,
    ) -> None:
        self.restarts = 0
        self._settings = settings
        self._way = way
        self._relays = relays
        self._reader = reader
        self._sender = sender
        self._consumer = consumer
        self._random = Random(settings.seed)  # noqa: S311 - to be repeated, not kept secret
        self._written = 0
        self._killed = asyncio.Event()
        """Once a relay was, or where none is to be."""
        if settings.kills == 0:
            self._killed.set()
        restarts = settings.restarts
        self._due = {settings.messages * (number + 1) // (restarts + 1): asyncio.Event() for number in range(restarts)}
        """For each restart, after how many messages it is due."""

    def written(self) -> None:
        """One more."""
        self._written += 1
        if self._written in self._due:
            self._due[self._written].set()

    async def to_the_end(self, writers: list[Writer]) -> None:
        """Until all is written and has arrived, and nothing more comes."""
        work = draw(self._settings.seed, self._settings.messages)
        async with asyncio.TaskGroup() as tasks:
            killing = tasks.create_task(self._kill())
            restarting = tasks.create_task(self._restart())
            for share in (islice(work, self._settings.messages // 2), work):
                async with asyncio.TaskGroup() as writing:
                    for writer in writers:
                        writing.create_task(writer.write(share))
                # However fast the machine is, there is work left when the first relay dies.
                await self._killed.wait()
            await restarting
            await self._until(self._all_arrived)
            killing.cancel()
        await self._calm()

    async def _kill(self) -> None:
        number = 0
        while number != self._settings.kills:
            number += 1
            await asyncio.sleep(self._settings.kill_every)
            await self._relays.kill(self._random.randrange(self._settings.relays))
            self._killed.set()
            if number % CONSUMER_EVERY == 0:
                await self._reader.kill(0)

    async def _restart(self) -> None:
        """Spread over the work; in good order first, and every other time by SIGKILL."""
        for number, due in enumerate(self._due.values()):
            await due.wait()
            await self._way.restart(self._reader, crash=number % 2 == 1)
            self.restarts += 1

    async def _all_arrived(self) -> bool:
        return await self._sender.pending() == 0 and (await self._consumer.arrived())[1] >= self._settings.messages

    async def _calm(self) -> None:
        """What is on its way a second time has come as well."""
        before = (-1, -1)
        while (now := await self._consumer.arrived()) != before:
            before = now
            await asyncio.sleep(STILL)

    async def _until(self, reached: Callable[[], Any]) -> None:
        """Return when it is, or nothing has moved for too long: the census says what that means."""
        seen = (-1, -1)
        last = time.monotonic()
        while time.monotonic() - last < PATIENCE:
            with suppress(StoreUnavailableError):
                if await reached():
                    return
                if seen != (seen := await self._consumer.arrived()):
                    last = time.monotonic()
            await asyncio.sleep(LOOK)


def _first(failed: Exception) -> Exception:
    """Of a group of groups."""
    while isinstance(failed, ExceptionGroup):
        failed = failed.exceptions[0]
    return failed
