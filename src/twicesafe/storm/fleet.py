"""Processes of one kind: started, watched, killed by process id, started again, and all ended with the storm.

One runs `work` of `twicesafe.storm.server`, or of another of the storm's modules. It is forked from a server that has
imported it already: a new interpreter needs longer for that, on a busy machine, than some of them live. On a line to
the storm it says `ready PORT`, `dying POINT KEY` before it kills itself as it was armed to, and `noted WHAT` of what is
to be counted. It ends when the line does: it cannot outlive the storm, not even one that is killed itself.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

from twicesafe.storm.errors import StormError
from twicesafe.storm.started import live

START_TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 6.0
"""Longer than a server takes to finish what it is doing."""
_FAILED_STARTS: Final = 5
"""A server that ends this often before it was ever ready will not start."""

_SHARED: Final = ("twicesafe.storm.", "twicesafe.stores.", "twicesafe.cli")
"""Of these a process of the storm's has what the storm has. The command line is where multiprocessing begins each."""

_CONTEXT: Final = multiprocessing.get_context("forkserver")


class Server:
    """One slot: a process, and after its death another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port: int | None = None
        """Where it listens; None while it is not ready."""
        self.process: ForkServerProcess | None = None
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
        return self.port is not None and self.process is not None and self.process.exitcode is None


class Fleet:
    """`size` servers, each started again whenever it ends, until `close`.

    `told` is what every server is told. `deaths` counts the processes that SIGKILL ended, under the name `death`,
    and at which armed point where they announced one; what is counted is what the operating system reported, not what
    was ordered. `struck` is told the key of the request at which an armed server announces its death.
    """

    def __init__(
        self,
        size: int,
        told: dict[str, Any],
        log: Path,
        struck: Callable[[str], None] = lambda _key: None,
        *,
        kind: str = "server",
        death: str = "sigkill",
    ) -> None:
        self.deaths: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        """What they said is to be counted."""
        self._module = _module(kind)
        self._death = death
        self._struck = struck
        self._told = told
        self._servers = [Server(f"{kind} {number}") for number in range(1, size + 1)]
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

    async def down(self) -> None:
        """End all servers at once, until `up`."""
        self._open.clear()
        await asyncio.gather(*(self._end(server) for server in self._servers))

    def up(self) -> None:
        """Start them again."""
        self._open.set()

    async def close(self) -> None:
        """End all servers, and with SIGKILL those that do not. Safe to call twice."""
        try:
            await self.down()
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
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        lines, line_end = await asyncio.open_unix_connection(sock=ours)
        with theirs:
            life = (self._module, self._told, str(self._log), theirs)
            process = _CONTEXT.Process(target=live, args=life, daemon=True)
            process.start()
        server.process = process
        server.ended.clear()
        server.stopping = False
        server.announced = ""
        dead = asyncio.Event()
        loop.add_reader(process.sentinel, dead.set)
        ready = False
        try:
            async for line in lines:
                word, _, rest = line.decode().strip().partition(" ")
                if word == "ready":
                    ready = True
                    server.port = int(rest)
                    await self._tell()
                elif word == "dying":
                    server.announced, _, key = rest.partition(" ")
                    self._struck(key)
                elif word == "noted":
                    self.noted[rest] += 1
            await dead.wait()
        finally:
            server.port = None
            loop.remove_reader(process.sentinel)
            if not dead.is_set():
                process.kill()
            process.join()
            line_end.close()
            server.ended.set()
        if process.exitcode == -signal.SIGKILL and (server.announced or not server.stopping):
            self.deaths[self._death] += 1
            if server.announced:
                self.deaths[server.announced] += 1
        return ready

    async def _end(self, server: Server) -> None:
        if server.process is None or server.ended.is_set():
            return
        server.port = None
        server.stopping = True
        server.process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await server.ended.wait()
        except TimeoutError:
            server.process.kill()
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


def preload(*kinds: str) -> None:
    """Start the server that forks; returns when it has imported what these kinds of processes work with.

    Beside their own modules it is what this process has of them, with the drivers of its databases.
    """
    mine = [name for name in sys.modules if name.startswith(_SHARED)]
    _CONTEXT.set_forkserver_preload([*mine, *map(_module, kinds)])
    first = _CONTEXT.Process(target=int)
    first.start()
    first.join()


def _module(kind: str) -> str:
    return f"twicesafe.storm.{kind}"
