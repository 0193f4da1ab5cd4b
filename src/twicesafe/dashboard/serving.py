"""Serves the dashboard as a process of its own, by uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn

from twicesafe.dashboard.application import Dashboard
from twicesafe.errors import ConfigurationError

DRAIN: Final = 2
"""Seconds that a page may take when it ends."""


def serve(application: Dashboard, host: str, port: int, say: Callable[[str], None]) -> bool:
    """Serve until SIGTERM or SIGINT. Whether it could be started; `say` is given the address once it was."""

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """The first signal ends it, and is no error."""
            loop = asyncio.get_running_loop()

            def stop() -> None:
                self.force_exit = self.should_exit
                self.should_exit = True
                application.close()

            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop)
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:
                where, taken = listening.getsockname()[:2]
                say(f"[{where}]:{taken}" if ":" in where else f"{where}:{taken}")

    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(f"--listen: {host}:{port} cannot be listened on: {error.strerror or error}") from None
    config = uvicorn.Config(
        application,
        ws="none",
        lifespan="off",
        # Whom a request comes from is counted for wrong passwords: nobody may make it up.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=DRAIN,
    )
    try:
        Server(config).run(sockets=[listening])
    except SystemExit:
        return False
    return True
