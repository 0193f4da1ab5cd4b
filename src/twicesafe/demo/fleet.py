"""The server processes: started, watched, and started again when they die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Final

from twicesafe.demo.directions import Direction, written
from twicesafe.demo.lanes import Lane
from twicesafe.demo.scene import Passing, Scene
from twicesafe.errors import TwicesafeError

GRACE: Final = 5.0
"""Seconds between SIGTERM and SIGKILL when the demo ends."""


class ServerFailedError(TwicesafeError):
    """A server process could not be started; what it said is on standard error."""


class LaneServer:
    """One lane's server: a socket that always listens, and a process behind it that may die."""

    def __init__(self, lane: Lane, file: Path, scene: Scene) -> None:
        self._lane = lane
        self._file = file
        self._scene = scene
        self._up = asyncio.Event()
        self._process: Process | None = None
        self._ahead = 0.0
        """Seconds by which the clock of keys is to be ahead, and those by which it is."""
        self._is_ahead = 0.0
        self._holding: set[str] = set()
        self._told = asyncio.Condition()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    @property
    def up(self) -> bool:
        """Whether the process serves."""
        return self._up.is_set()

    async def ready(self) -> None:
        """Wait until it does."""
        await self._up.wait()

    async def held(self, name: str) -> None:
        """Wait until the process holds the request of this name."""
        async with self._told:
            await self._told.wait_for(lambda: name in self._holding)

    def go(self, name: str) -> None:
        """Let go of it, now or when it comes."""
        self._direct(Direction.GO, name)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for keys. Comes back when it has."""
        self._ahead += seconds
        self._direct(Direction.AHEAD, str(self._ahead))
        async with self._told:
            await self._told.wait_for(lambda: self._is_ahead == self._ahead)

    def _direct(self, direction: Direction, note: str) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            assert process.stdin is not None, "it has a pipe"
            process.stdin.write(written(direction, note))

    async def run(self) -> None:
        """Keep a process running, until cancelled. ServerFailedError where one never gets as far as serving."""
        with self._listening:
            while True:
                reading, writing = os.pipe()
                ahead = self._ahead
                try:
                    process = self._process = await self._start(writing, ahead)
                finally:
                    os.close(writing)
                if ahead != self._ahead:
                    # It was told while there was no process to hear it.
                    self._direct(Direction.AHEAD, str(self._ahead))
                try:
                    await self._listen(reading, process, ahead)
                    await process.wait()
                finally:
                    was_up = self._up.is_set()
                    self._up.clear()
                    await _end(process)
                if not was_up:
                    raise ServerFailedError(f"the {self._lane} server could not start; what it said is above")
                self._scene.down(self._lane)

    async def _start(self, reports: int, ahead: float) -> Process:
        listening = self._listening.fileno()
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "twicesafe.demo.worker", self._lane, str(self._file), str(listening), str(reports),
            str(ahead), stdin=PIPE, stdout=DEVNULL, pass_fds=(listening, reports),
            start_new_session=True,  # a Ctrl-C at the terminal is the demo's to act on
        )  # fmt: skip

    async def _listen(self, reading: int, process: Process, ahead: float) -> None:
        """Take the process's reports until it is gone."""
        loop = asyncio.get_running_loop()
        reports = asyncio.StreamReader()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reports), os.fdopen(reading, "rb"))
        try:
            while line := await reports.readline():
                event, note = json.loads(line)
                await self._heard(event, note, process, ahead)
        finally:
            pipe.close()

    async def _heard(self, event: str, note: str, process: Process, ahead: float) -> None:
        scene, lane = self._scene, self._lane
        match event:
            case "ready":
                scene.up(lane, process.pid)
                self._up.set()
                await self._learn(ahead=ahead)
            case "ahead":
                await self._learn(ahead=float(note))
            case "holding":
                await self._learn(holding=note)
            case "began":
                scene.began(lane, Passing.read(note))
            case "answering":
                scene.answering(lane, Passing.read(note))
            case "ended":
                scene.ended(lane, Passing.read(note))

    async def _learn(self, *, ahead: float | None = None, holding: str | None = None) -> None:
        async with self._told:
            if ahead is not None:
                self._is_ahead = ahead
            if holding is not None:
                self._holding.add(holding)
            self._told.notify_all()


async def _end(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(GRACE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
