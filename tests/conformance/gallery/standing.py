"""Servers at work: many of them in one thread, each on a port of its own, and one as a process, to be killed.

As a program it is that one: `python -m tests.conformance.gallery.standing NAME SOCKET FILE`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final, Protocol

import uvicorn
from starlette.types import Receive, Scope, Send

from tests.conformance.gallery import faults_of_claims, faults_of_fingerprints, faults_of_keys, faults_of_records
from tests.conformance.gallery.honest import Honest
from tests.conformance.gallery.protected import BRIEF, on_file
from twicesafe.storm.tied import PR_SET_PDEATHSIG, tied

PATIENCE: Final = 30.0
"""Seconds that a process may take to begin."""


class Served(Protocol):
    """An ASGI application with a beginning and an end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def start(self) -> None: ...

    async def aclose(self) -> None: ...


def _servers(*modules: ModuleType) -> dict[str, type[Honest]]:
    return {
        name: found
        for module in modules
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, Honest) and found.__module__ == module.__name__
    }


FAULTY: Final[Mapping[str, type[Honest]]] = _servers(
    faults_of_keys, faults_of_fingerprints, faults_of_claims, faults_of_records
)
"""By name. What is wrong with each is its docstring."""


def _soon_free(file: Path) -> Honest:
    """The honest one, which lets go soon of what it held when it was killed."""
    honest = Honest(file)
    honest.lease = BRIEF.total_seconds()
    return honest


MORTALS: Final[Mapping[str, Callable[[Path], Served]]] = {
    **FAULTY, Honest.__name__: _soon_free, "twicesafe": on_file
}  # fmt: skip
"""Those that keep what they know in a file."""


@contextmanager
def serving(applications: Mapping[str, Served]) -> Iterator[Mapping[str, int]]:
    """Serve them in one thread, each on a port of its own; the ports."""
    listening = {name: socket.create_server(("127.0.0.1", 0), backlog=128) for name in applications}
    ports = {name: one.getsockname()[1] for name, one in listening.items()}
    names = {port: name for name, port in ports.items()}

    async def by_port(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lived(list(applications.values()), receive, send)
            return
        await applications[names[scope["server"][1]]](scope, receive, send)

    server = uvicorn.Server(_config(by_port))
    thread = threading.Thread(target=server.run, args=(list(listening.values()),), daemon=True)
    thread.start()
    try:
        yield ports
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


async def _lived(applications: Iterable[Served], receive: Receive, send: Send) -> None:
    await receive()
    for one in applications:
        await one.start()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    for one in applications:
        await one.aclose()
    await send({"type": "lifespan.shutdown.complete"})


def _config(application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> uvicorn.Config:
    return uvicorn.Config(
        application, http="h11", lifespan="on", log_level="critical", access_log=False, timeout_graceful_shutdown=5
    )


class Mortal:
    """A server of the gallery as a process. Whoever connects to `control` has it killed, and started again.

    Its socket stays: who comes meanwhile waits for the next process.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._serving = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._serving.getsockname()[1]
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.control: int = self._listening.getsockname()[1]
        module, file = "tests.conformance.gallery.standing", folder / f"{name}.db"
        self._command = tied([sys.executable, "-m", module, name, str(self._serving.fileno()), str(file)])
        # It lasts as long as the process is to.
        self._thread = threading.Thread(target=self._restart_for_ever, daemon=True)

    def __enter__(self) -> Mortal:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake whoever accepts.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._listening.close()
        self._serving.close()

    def _restart_for_ever(self) -> None:
        keeper = subprocess.Popen(
            self._command, cwd=Path(__file__).parents[3], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            pass_fds=[self._serving.fileno()],
        )  # fmt: skip
        with keeper as process:
            assert process.stdin is not None and process.stdout is not None
            while True:
                try:
                    asking, _ = self._listening.accept()
                except OSError:
                    return
                with asking:
                    asking.recv(1024)
                    process.stdin.write(b"again\n")
                    process.stdin.flush()
                    asking.sendall(process.stdout.readline())


def main(arguments: Iterable[str]) -> None:
    """Keep one at work, with its records in a file: with each line that is read it dies, and another one lives.

    What is imported is imported once; a process that was forked dies and forgets as any other.
    """
    name, inherited, file = arguments
    listening = socket.socket(fileno=int(inherited))
    life = _born(name, listening, file)
    for _ in sys.stdin:
        _kill(life)
        life = _born(name, listening, file)
        print("up", flush=True)
    _kill(life)


def _born(name: str, listening: socket.socket, file: str) -> int:
    keeper = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        _end_with(keeper)
        _serve(MORTALS[name](Path(file)), listening)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)


def _end_with(keeper: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            # It ended before there was a tie.
            os._exit(1)


def _kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _serve(served: Served, listening: socket.socket) -> None:
    async def alone(scope: Scope, receive: Receive, send: Send) -> None:
        await (_lived([served], receive, send) if scope["type"] == "lifespan" else served(scope, receive, send))

    uvicorn.Server(_config(alone)).run([listening])


if __name__ == "__main__":
    main(sys.argv[1:])
