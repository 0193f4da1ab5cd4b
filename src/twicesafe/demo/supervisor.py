"""Puts the demo together and takes it apart again: the gate, the stage behind it, and one server process to a lane."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from twicesafe.demo.faults import ArmedFaults
from twicesafe.demo.fleet import LaneServer, ServerFailedError
from twicesafe.demo.gate import Gate
from twicesafe.demo.lanes import Lane
from twicesafe.demo.ledger import Ledger, ledger_file
from twicesafe.demo.scene import Scene
from twicesafe.demo.serving import Embedded
from twicesafe.demo.stage import stage

HIGHEST_PORT: Final = 65_535
NEIGHBOURS: Final = 10
"""How many ports above the wished one are tried before any free one is taken."""


def run(port: int, file: Path | None, *, lets_expire: bool = False) -> None:
    """Serve the demo until SIGINT or SIGTERM. Without a file, the ledger lives as long as the demo does."""
    with ExitStack() as stack:
        if file is None:
            folder = tempfile.TemporaryDirectory(prefix="twicesafe-demo-", ignore_cleanup_errors=True)
            file = Path(stack.enter_context(folder)) / "payments.db"
        try:
            asyncio.run(_run(port, file, lets_expire=lets_expire))
        except BaseExceptionGroup as failures:
            failed = failures.subgroup(ServerFailedError)
            raise failures if failed is None else failed.exceptions[0] from None


async def _run(port: int, file: Path, *, lets_expire: bool) -> None:
    stop = _stop_event()
    faults = ArmedFaults()
    with _ledgers(file) as ledgers, _listen(port) as public, _listen(0) as inner:
        scene = Scene(ledgers)
        servers = {lane: LaneServer(lane, ledger_file(lane, file), scene) for lane in Lane}
        page = Embedded(stage(scene, faults, servers.values(), lets_expire=lets_expire))
        gate = Gate(_port(inner), servers, faults, scene)
        async with asyncio.TaskGroup() as group:
            staging = group.create_task(page.serve(sockets=[inner]))
            running = [group.create_task(server.run()) for server in servers.values()]
            opened = group.create_task(_open(public, gate, servers.values(), partial(_announce, public, port, file)))
            await stop.wait()
            opened.cancel()
            await gate.stop()
            scene.close()
            page.should_exit = True
            await staging
            for task in running:
                task.cancel()


async def _open(public: socket.socket, gate: Gate, servers: Iterable[LaneServer], announce: Callable[[], None]) -> None:
    """Let browsers in once there is something to see, until cancelled."""
    for server in servers:
        await server.ready()
    async with await asyncio.start_server(gate.connected, sock=public) as door:
        announce()
        await door.serve_forever()


@contextmanager
def _ledgers(file: Path) -> Iterator[dict[Lane, Ledger]]:
    with ExitStack() as stack:
        yield {lane: stack.enter_context(closing(Ledger(ledger_file(lane, file)))) for lane in Lane}


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _listen(port: int) -> socket.socket:
    """The wished port of 127.0.0.1, or one near it, or any."""
    for wished in (*range(port, min(port + NEIGHBOURS, HIGHEST_PORT + 1)), 0):
        try:
            return socket.create_server(("127.0.0.1", wished))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise OSError(errno.EADDRINUSE, "no port of 127.0.0.1 is free")


def _port(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


def _announce(public: socket.socket, wished: int, file: Path) -> None:
    port = _port(public)
    taken = "" if wished in (0, port) else f"Port {wished} is taken.\n"
    sys.stdout.write(
        f"{taken}The demo is at http://127.0.0.1:{port}\n"
        f"The ledgers are {file} and {ledger_file(Lane.NAIVE, file).name}\n"
        "Ctrl-C stops it.\n"
    )
    sys.stdout.flush()
