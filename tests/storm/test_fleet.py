"""The fleet: server processes that are killed and come back, and a count of deaths that tells the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twicesafe.storm.errors import StormError
from twicesafe.storm.fleet import Fleet, preload


@pytest.fixture(scope="module", autouse=True)
def preloaded() -> None:
    """What the servers work with is imported once."""
    preload("server")


def with_fleet(folder: Path, act: Callable[[Fleet], Awaitable[None]], *, naive: bool = True) -> None:
    """Run `act` with a fleet of two servers on a new file, bounded."""

    async def run() -> None:
        url = f"sqlite:///{folder}/ledger.sqlite3"
        settings = {"store": url, "ledger": url, "naive": naive, "slow": 0.0, "provider": None, "events": None}
        fleet = Fleet(2, settings, folder / "servers.log", struck=lambda key: None)
        try:
            async with asyncio.timeout(60):
                await fleet.start()
                await act(fleet)
        finally:
            await fleet.close()

    asyncio.run(run())


async def answer(port: int) -> bytes:
    """The status line that the server on `port` answers nonsense with: it is there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"nonsense\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return line


def test_a_killed_server_is_counted_and_comes_back(tmp_path: Path) -> None:
    """R42: SIGKILL hits a process that was serving, is counted once, and another server takes its place."""

    async def act(fleet: Fleet) -> None:
        before = {await fleet.pick() for _ in range(4)}
        assert len(before) == 2
        for victim in range(3):
            await fleet.kill(victim)
        assert fleet.deaths == {"sigkill": 3}
        assert (await answer(await fleet.pick())).startswith(b"HTTP/1.1 ")

    with_fleet(tmp_path, act)


def test_a_server_that_has_just_died_is_waited_for(tmp_path: Path) -> None:
    """R42: between a process's end and the news of it nobody is killed or picked, and everything else goes on."""

    async def run() -> None:
        fleet = Fleet(1, {}, tmp_path / "servers.log", struck=lambda key: None)
        server = fleet._servers[0]
        server.port, server.process = 1, cast("Any", SimpleNamespace(exitcode=-9))
        killing, picking = asyncio.create_task(fleet.kill(0)), asyncio.create_task(fleet.pick())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not killing.done() and not picking.done()
        killing.cancel()
        server.process = cast("Any", SimpleNamespace(exitcode=None))
        await fleet._tell()
        assert await picking == 1

    asyncio.run(run())


def test_all_servers_end_and_start_together(tmp_path: Path) -> None:
    """R42: all are gone before the first starts again, so that nobody holds the file open; no kill is counted."""

    async def act(fleet: Fleet) -> None:
        before = {await fleet.pick() for _ in range(4)}
        await fleet.down()
        fleet.up()
        for port in before:
            with pytest.raises(ConnectionRefusedError):
                await answer(port)
        assert (await answer(await fleet.pick())).startswith(b"HTTP/1.1 ")
        assert fleet.deaths == {}

    with_fleet(tmp_path, act)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """House: a server without its tables does not start, and the storm ends with what it said."""

    async def act(fleet: Fleet) -> None:
        raise AssertionError("it has started")

    with pytest.raises(StormError, match=r"(?s)does not start.*run `twicesafe schema apply"):
        with_fleet(tmp_path, act, naive=False)
