"""Runs the storms of the lab, some at a time, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from twicesafe.storm.chaos.matrix import Cell
from twicesafe.storm.chaos.plan import WORLDS, Trouble
from twicesafe.storm.chaos.world import build
from twicesafe.storm.errors import StormError
from twicesafe.storm.tied import tied

PATIENCE: Final = 180.0
"""Seconds for one storm. Most take a tenth of it."""
_ENDING: Final = 30.0
"""Seconds that it has to end its servers when it is told to."""

_ISOLATED: Final = ("unshare", "--net", "--mount", "--propagation", "private")
"""A network and mounts of its own, which are gone when it is."""
_PROBE: Final = "ip link set dev lo up && ip link add name app0 type veth peer name db0 && iptables -w -nL && ss -Htn"
"""What is done in them."""
_TOOLS: Final = ("ip", "iptables", "mkfs.ext4", "mount", "nsenter", "ss", "tc", "umount", "unshare")


class Ran(NamedTuple):
    """What became of a cell. `told` is what its process said of it, and empty where that failed."""

    cell: Cell
    told: dict[str, Any]
    seconds: float
    error: str = ""

    @property
    def proofs(self) -> dict[str, dict[str, Any]]:
        """By trouble: how many blows fell, how many of them nobody felt, and the figures."""
        return self.told.get("proofs", {})  # type: ignore[no-any-return]

    @property
    def clean(self) -> bool:
        """Whether each intent had one effect, and each client knows."""
        return bool(self.told.get("clean"))

    @property
    def struck(self) -> bool:
        """Whether every trouble did."""
        return bool(self.proofs) and not self.idle

    @property
    def idle(self) -> list[str]:
        """The troubles that did not, each time they came."""
        return [name for name, proof in self.proofs.items() if not proof["blows"] or proof["unfelt"]]

    @property
    def as_wanted(self) -> bool:
        """A storm without twicesafe is wanted to show damage."""
        if self.cell.naive:
            return bool(self.told) and self.told["report"]["duplicates"] > 0 and self.struck
        return self.clean and self.struck


def isolation() -> bool:
    """Whether storms can have networks and mounts of their own: by root, with iproute2, iptables and e2fsprogs."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in _TOOLS):
        return False
    probe = [*_ISOLATED, "sh", "-c", _PROBE]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0  # noqa: S603


def check(cells: Sequence[Cell], *, isolated: bool) -> None:
    """StormError for what cannot be run here; it says what is missing."""
    wanted = {trouble for cell in cells for trouble in cell.troubles}
    if Trouble.DISK_FULL in wanted and not isolated:
        raise StormError(
            f"{Trouble.DISK_FULL} needs root, who may mount a small disk in a namespace of its own: leave it out by "
            "--troubles"
        )


async def run(
    cells: Sequence[Cell], at_once: int, *, isolated: bool, ran: Callable[[Ran], None] = lambda _ran: None
) -> list[Ran]:
    """All of them, in their order; `ran` is told of each when it has ended. StormError where they cannot be run.

    No process that was started is left when this returns or raises, cancelled or not.
    """
    check(cells, isolated=isolated)
    with TemporaryDirectory(prefix="twicesafe-chaos-") as name:
        folder = Path(name)
        # A database that it is preloaded into is another user.
        folder.chmod(0o755)  # noqa: ASYNC240 - a moment
        library = None
        if any(WORLDS.intersection(cell.troubles) for cell in cells):
            library = await asyncio.to_thread(build, folder)
        turns = asyncio.Semaphore(at_once)

        async def one(cell: Cell) -> Ran:
            async with turns:
                result = await _one(cell, library, isolated=isolated)
            ran(result)
            return result

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(cell)) for cell in cells]
        return [task.result() for task in running]


async def _one(cell: Cell, library: Path | None, *, isolated: bool) -> Ran:
    began = time.monotonic()
    asked = json.dumps({"cell": cell.as_dict(), "isolated": isolated})
    command = [*(_ISOLATED if isolated else ()), sys.executable, "-m", "twicesafe.storm.chaos.cell", asked]
    process = await asyncio.create_subprocess_exec(
        *tied(command),
        env=os.environ if library is None else {**os.environ, "LD_PRELOAD": str(library)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    except TimeoutError:
        await _end(process)
        return Ran(cell, {}, time.monotonic() - began, f"it was not over after {PATIENCE:.0f} s")
    except asyncio.CancelledError:
        await _end(process)
        raise
    seconds = time.monotonic() - began
    if process.returncode:
        return Ran(cell, {}, seconds, err.decode(errors="replace").strip()[-600:] or f"status {process.returncode}")
    return Ran(cell, json.loads(out), seconds)


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_ENDING):
            await process.communicate()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
