"""The weather of one storm of the lab: what its cell asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import AsyncResumes, AsyncStore
from twicesafe.stores.urls import open_async_store
from twicesafe.storm.chaos.beside import ASKING, PATIENCE, keep_asking, keep_writing
from twicesafe.storm.chaos.disk import SmallDisk
from twicesafe.storm.chaos.link import Link
from twicesafe.storm.chaos.matrix import Cell, Operation
from twicesafe.storm.chaos.plan import DISKS, LINKS, WORLDS, Part, Spell, Trouble, draw
from twicesafe.storm.chaos.relay import Relay
from twicesafe.storm.chaos.settling import resume_unknown, settle_unknown
from twicesafe.storm.chaos.troubles import LOOK, Met
from twicesafe.storm.chaos.troubles_clock import AppClock, Heard, StoreClock
from twicesafe.storm.chaos.troubles_disk import DiskFull, Refusals, RefusalsInLog, RefusalsOfFile, SlowDisk
from twicesafe.storm.chaos.troubles_network import Cut, SlowLink
from twicesafe.storm.chaos.world import NAMED_BY, World
from twicesafe.storm.company import Company
from twicesafe.storm.databases import (
    Database,
    OwnMariaDB,
    OwnPostgreSQL,
    OwnRedis,
    SqliteFile,
    called_in,
    database,
    ledger_in,
)
from twicesafe.storm.errors import StormError
from twicesafe.storm.ledger_downstream import DownstreamLedger
from twicesafe.storm.place import Place
from twicesafe.storm.plan import Plan
from twicesafe.storm.settings import Settings
from twicesafe.storm.weather import Weather

_ABANDONED: Final = "10"
"""Seconds after which a database gives up a transaction whose client is silent: a connection that was reset on one side
only would keep a key in progress until somebody restarts the database."""
_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "sqlite": {},
    "postgresql": {
        "idle_in_transaction_session_timeout": f"{_ABANDONED}s",
        "max_wal_size": "64MB",
        "min_wal_size": "32MB",
    },
    "mysql": {"idle-transaction-timeout": _ABANDONED, "innodb-log-file-size": "16M"},
    "redis": {},
}
_MEGABYTES: Final = {"sqlite": 48, "postgresql": 256, "mysql": 384, "redis": 48}
_BACK_WITHIN: Final = 60.0
"""Seconds a database has to be there again, on a busy machine."""


class LabWeather(Weather):
    """The weather of `cell`. `isolated`: it is in namespaces of its own, and root there."""

    def __init__(self, cell: Cell, *, isolated: bool) -> None:
        self.plan_of_storm, self._spells = draw(
            cell.seed, cell.troubles, stepwise=cell.operation is Operation.RESUMABLE
        )
        self.troubles: dict[Trouble, Met] = {}
        self.heard_of = Heard()
        self.crashes = 0
        """Of the database, in spells."""
        self.held = 0
        """Outcomes that were held as unknown though nothing of them was, and that an operator saw to."""
        self.revivals = 0
        """How often the database had gone down by itself and was started again."""
        self._cell = cell
        self._isolated = isolated
        self._app: World | None = None
        self._called: DownstreamLedger | None = None
        self._base: Database
        self._store: AsyncStore

    def plan(self, _settings: Settings) -> Plan:
        return self.plan_of_storm

    def told(self) -> dict[str, Any]:
        return {} if self._app is None else {"world": str(self._app.file)}

    def heard(self, answer: bytes) -> None:
        self.heard_of.hear(answer)

    @asynccontextmanager
    async def database(self, settings: Settings, folder: Path, users: int) -> AsyncIterator[Database]:
        wanted = frozenset(self._cell.troubles)
        # The database is another user, and its disk and its world are in here.
        folder.chmod(0o755)  # noqa: ASYNC240 - a moment
        async with AsyncExitStack() as stack:
            link = disk = world = None
            if wanted & LINKS and self._isolated:
                link = Link(folder)
                stack.callback(link.close)
                await asyncio.to_thread(link.open)
            if Trouble.DISK_FULL in wanted:
                disk = SmallDisk(folder / "disk", folder / "image", _MEGABYTES[settings.store])
                stack.callback(disk.unmount)
                await asyncio.to_thread(disk.mount)
            if wanted & WORLDS:
                self._app = World(folder / "world")
                world = self._app if settings.store == "sqlite" else World(folder / "world-of-database")
            place = Place(
                folder=None if disk is None else disk.folder,
                logs=folder,
                settings=_SETTINGS[settings.store],
                environment={} if world is None else {NAMED_BY: str(world.file)},
            )
            if link is not None:
                place = Place(
                    folder=place.folder, logs=folder, settings=place.settings, environment=place.environment,
                    host=link.host, client=link.client, through=link.through,
                )  # fmt: skip
            base = self._base = await stack.enter_async_context(database(settings.store, folder, users, place))
            way: Link | Relay | None = link
            if wanted & LINKS and way is None:
                way = await self._relayed(base, stack)
            self._store = open_async_store(base.url)
            stack.push_async_callback(self._store.aclose)
            if self._cell.operation is Operation.KEYED:
                called = ledger_in(called_in(folder))
                assert isinstance(called, DownstreamLedger)
                self._called = called
            if disk is not None:
                rows = None
                if isinstance(base, OwnPostgreSQL | OwnMariaDB):
                    rows = await stack.enter_async_context(ledger_in(base.url))
                    await rows.create()
                self.troubles[Trouble.DISK_FULL] = DiskFull(disk, _refusals(base), rows)
            if way is not None:
                self.troubles[Trouble.CUT] = Cut(way)
                self.troubles[Trouble.SLOW_LINK] = SlowLink(way)
            if world is not None and self._app is not None:
                of_servers = self.heard_of if settings.store == "sqlite" else None
                self.troubles[Trouble.SLOW_DISK] = SlowDisk(world)
                self.troubles[Trouble.APP_CLOCK] = AppClock(self._app, self.heard_of)
                self.troubles[Trouble.STORE_CLOCK] = StoreClock(world, self._store, of_servers)
            yield base

    async def befall(self, spell: int, company: Company) -> None:
        now = self._spells[spell]
        met = [self.troubles[part.trouble] for part in now.parts]
        blows: list[asyncio.Task[None]] = []
        async with AsyncExitStack() as stack:
            for work in self._beside(now):
                stack.push_async_callback(_ended, asyncio.create_task(work))
            begun: list[Met] = []
            for part in sorted(now.parts, key=_turn):
                trouble = self.troubles[part.trouble]
                if part.trouble is Trouble.DISK_FULL:
                    # Some databases go down of it, and nothing of the others could be felt any more.
                    await asyncio.gather(*(earlier.struck() for earlier in begun))
                await trouble.begin(part)
                begun.append(trouble)
                stack.push_async_callback(trouble.end)
            await asyncio.sleep(now.seconds / 2)
            if now.kill:
                blows.append(asyncio.create_task(company.servers.kill(spell)))
            if now.crash:
                blows.append(asyncio.create_task(self._crash(company)))
            await asyncio.sleep(now.seconds / 2)
        # They may need what has just been mended.
        await asyncio.gather(*blows)
        await self._revive(company)
        for trouble in met:
            await trouble.look_back()

    async def calmed(self, asked: Sequence[tuple[str, str]]) -> None:
        if self._cell.naive:
            return
        if self._called is not None:
            self.held = await settle_unknown(self._store, self._called, asked)
        elif self._cell.operation is Operation.RESUMABLE:
            self.held = await resume_unknown(cast("AsyncResumes", self._store))

    # --- how ---------------------------------------------------------------------------------------------------------

    async def _relayed(self, base: Database, stack: AsyncExitStack) -> Relay:
        assert isinstance(base, OwnPostgreSQL | OwnMariaDB | OwnRedis)
        port = urlsplit(base.url).port
        assert port is not None
        relay = Relay(port)
        stack.push_async_callback(relay.close)
        await relay.open()
        beside = base.ledger == base.url
        base.url = base.url.replace(f":{port}/", f":{relay.port}/")
        if beside:
            base.ledger = base.url
        return relay

    def _beside(self, spell: Spell) -> Iterator[Coroutine[Any, Any, None]]:
        """What goes on while it lasts, so that it meets something."""
        met = {part.trouble for part in spell.parts}
        if met & LINKS:
            yield from (keep_asking(self._store) for _ in range(ASKING))
        # A file is flushed by servers, and filled by whoever counts how often it refused.
        if met & DISKS and not isinstance(self._base, SqliteFile):
            yield keep_writing(self._store)

    async def _crash(self, company: Company) -> None:
        if await self._base.restart(company, not isinstance(self._base, SqliteFile)):
            self.crashes += 1

    async def _revive(self, company: Company) -> None:
        """Return when the database is there; one that went down by itself is started again. StormError."""
        server = self._base.server if isinstance(self._base, OwnPostgreSQL | OwnMariaDB | OwnRedis) else None
        with suppress(TimeoutError):
            async with asyncio.timeout(_BACK_WITHIN):
                while True:
                    if server is not None and server.ended:
                        with suppress(StormError):
                            await self._base.restart(company, True)
                            self.revivals += 1
                    with suppress(StoreUnavailableError, TimeoutError):
                        async with asyncio.timeout(PATIENCE):
                            await self._store.now()
                            return
                    await asyncio.sleep(LOOK)
        raise StormError(f"the database was not there again after {_BACK_WITHIN:.0f} s")


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _turn(part: Part) -> int:
    """What begins last ends first. Each may wait for a sign of itself: no cut may last for as long, and while a disk is
    full there is none of others."""
    if part.trouble in LINKS:
        return 2
    return 1 if part.trouble is Trouble.DISK_FULL else 0


def _refusals(base: Database) -> Refusals:
    if isinstance(base, OwnPostgreSQL | OwnMariaDB | OwnRedis):
        return RefusalsInLog(base.server)
    return RefusalsOfFile(Path(base.url.removeprefix("sqlite:///")))
