"""The server processes: started, watched, killed by process id, started again, and all ended with the storm.

A server is this Python running `twicesafe.storm.server`. It is told what to do in one line of JSON on its standard
input (a database URL holds a password, and command lines are public). On its standard output it says `ready PORT`, and
`dying POINT KEY` before it kills itself as it was armed to. It ends when its standard input does: it cannot outlive the
storm, not even one that is killed itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twicesafe.storm.errors import StormError

START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 6.0
"""Longer than a server takes to finish what it is doing."""
_FAILED_STARTS: Final = 5
"""A server that ends this often before it was ever ready will not start."""


class Server:
    """One slot: a process, and after its death another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port: int | None = None
        """Where it listens; None while it is not ready."""
        self.process: asyncio.subprocess.Process | None = None
        self.ended = asyncio.Event()
        """Set while no process runs in this slot."""
        self.ended.set()
        self.announced = ""
        """The armed point at which the last process said it would kill itself."""
        self.stopping = False
        """Whether the process was asked to end: if it then has to be killed, that is no fault of the plan."""

    @property
    def ready(self) -> bool:
        """Whether it serves. A process may have ended a moment before its slot hears of it."""
        return self.port is not None and self.process is not None and self.process.returncode is None


class Fleet:
    """`size` servers, each started again whenever it ends, until `close`.

    `settings` is what every server is told. `deaths` counts the processes that SIGKILL ended, and at which armed point
    where they announced one; what is counted is what the operating system reported, not what was ordered. `struck` is
    told the key of the request at which an armed server announces its death.
    """

    def __init__(self, size: int, settings: dict[str, Any], log: Path, struck: Callable[[str], None]) -> None:
        self.deaths: Counter[str] = Counter()
        self._struck = struck
        self._settings = json.dumps(settings).encode() + b"\n"
        self._servers = [Server(f"server {number}") for number in range(1, size + 1)]
        self._log = log
        self._keepers: list[asyncio.Task[None]] = []
        self._open = asyncio.Event()
        self._changed = asyncio.Condition()
        self._failure: StormError | None = None
        self._turn = 0

    async def start(self) -> None:
        """Start all of them and wait until every one is ready."""
        self._open.set()
        self._keepers = [asyncio.create_task(self._keep(server), name=server.name) for server in self._servers]
        try:
            async with asyncio.timeout(START_TIMEOUT), self._changed:
                await self._changed.wait_for(lambda: self._failure or all(server.ready for server in self._servers))
        except TimeoutError:
            raise StormError(f"the servers did not start within {START_TIMEOUT:.0f} s: {self._last_words()}") from None
        self._check()

    async def pick(self) -> int:
        """The port of the next ready server, waiting for one where there is none."""
        while True:
            await self._any_ready()
            for _ in self._servers:
                self._turn = (self._turn + 1) % len(self._servers)
                server = self._servers[self._turn]
                if server.ready and server.port is not None:
                    return server.port

    async def kill(self, victim: int) -> None:
        """SIGKILL a ready server: number `victim` modulo their count, or the next; returns when it is dead of it."""
        while True:
            await self._any_ready()
            for offset in range(len(self._servers)):
                server = self._servers[(victim + offset) % len(self._servers)]
                if server.ready:
                    assert server.process is not None
                    server.port = None
                    server.process.kill()
                    await server.ended.wait()
                    if not server.announced:
                        return

    async def restart_all(self) -> None:
        """End all servers at once, and when the last is gone start them again."""
        self._open.clear()
        await asyncio.gather(*(self._end(server) for server in self._servers))
        self._open.set()

    async def close(self) -> None:
        """End all servers, and with SIGKILL those that do not. Safe to call twice."""
        self._open.clear()
        try:
            await asyncio.gather(*(self._end(server) for server in self._servers))
        finally:
            for keeper in self._keepers:
                keeper.cancel()
            await asyncio.gather(*self._keepers, return_exceptions=True)

    # --- how ---------------------------------------------------------------------------------------------------------

    async def _keep(self, server: Server) -> None:
        failures = 0
        while True:
            await self._open.wait()
            if await self._run(server) or not self._open.is_set():
                failures = 0
                continue
            failures += 1
            if failures == _FAILED_STARTS:
                self._failure = StormError(f"{server.name} does not start: {self._last_words()}")
                await self._tell()
                return

    async def _run(self, server: Server) -> bool:
        """One life of a server, from start to death; whether it was ever ready."""
        with self._log.open("ab") as log:
            process = server.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "twicesafe.storm.server"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        server.ended.clear()
        server.stopping = False
        server.announced = ""
        assert process.stdin is not None and process.stdout is not None
        ready = False
        try:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(self._settings)
                await process.stdin.drain()
            async for line in process.stdout:
                word, _, rest = line.decode().strip().partition(" ")
                if word == "ready":
                    ready = True
                    server.port = int(rest)
                    await self._tell()
                elif word == "dying":
                    server.announced, _, key = rest.partition(" ")
                    self._struck(key)
            await process.wait()
        finally:
            server.port = None
            if process.returncode is None:
                process.kill()
                await process.wait()
            process.stdin.close()
            server.ended.set()
        if process.returncode == -signal.SIGKILL and (server.announced or not server.stopping):
            self.deaths["sigkill"] += 1
            if server.announced:
                self.deaths[server.announced] += 1
        return ready

    async def _end(self, server: Server) -> None:
        process = server.process
        if process is None or process.returncode is not None:
            return
        server.port = None
        server.stopping = True
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await server.ended.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await server.ended.wait()

    async def _any_ready(self) -> None:
        self._check()
        async with self._changed:
            await self._changed.wait_for(lambda: self._failure or any(server.ready for server in self._servers))
        self._check()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-600:] or "it left no log"
