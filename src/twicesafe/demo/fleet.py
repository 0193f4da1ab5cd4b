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
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    @property
    def up(self) -> bool:
        """Whether the process serves."""
        return self._up.is_set()

    async def ready(self) -> None:
        """Wait until it does."""
        await self._up.wait()

    async def run(self) -> None:
        """Keep a process running, until cancelled. ServerFailedError where one never gets as far as serving."""
        with self._listening:
            while True:
                reading, writing = os.pipe()
                try:
                    process = await self._start(writing)
                finally:
                    os.close(writing)
                try:
                    await self._listen(reading, process)
                    await process.wait()
                finally:
                    was_up = self._up.is_set()
                    self._up.clear()
                    await _end(process)
                if not was_up:
                    raise ServerFailedError(f"the {self._lane} server could not start; what it said is above")
                self._scene.down(self._lane)

    async def _start(self, reports: int) -> Process:
        listening = self._listening.fileno()
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "twicesafe.demo.worker", self._lane, str(self._file), str(listening), str(reports),
            stdin=PIPE, stdout=DEVNULL, pass_fds=(listening, reports),
            start_new_session=True,  # a Ctrl-C at the terminal is the demo's to act on
        )  # fmt: skip

    async def _listen(self, reading: int, process: Process) -> None:
        """Take the process's reports until it is gone."""
        loop = asyncio.get_running_loop()
        reports = asyncio.StreamReader()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reports), os.fdopen(reading, "rb"))
        try:
            while line := await reports.readline():
                event, note = json.loads(line)
                self._heard(event, note, process)
        finally:
            pipe.close()

    def _heard(self, event: str, note: str, process: Process) -> None:
        scene, lane = self._scene, self._lane
        match event:
            case "ready":
                scene.up(lane, process.pid)
                self._up.set()
            case "began":
                scene.began(lane, Passing.read(note))
            case "answering":
                scene.answering(lane, Passing.read(note))
            case "ended":
                scene.ended(lane, Passing.read(note))


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
