"""Runs a gateway under uvicorn or granian."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Final

from twicesafe.errors import ConfigurationError, StoreUnavailableError
from twicesafe.gateway.application import Gateway
from twicesafe.gateway.settings import Settings, to_environment

IDLE: Final = 75
"""Seconds for which a caller's idle connection stays open: longer than proxies in front keep theirs, so that it is they
who close it and no request meets a closed door."""


def by_uvicorn(settings: Settings, host: str, port: int, say: Callable[[str], None]) -> bool:
    """Serve until SIGTERM or SIGINT. Whether it could be started; if not, uvicorn has said why."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """The first signal ends it when its requests have ended, the second at once."""
            loop = asyncio.get_running_loop()

            def stop() -> None:
                self.force_exit = self.should_exit
                self.should_exit = True

            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop)
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:
                say(_address(*listening.getsockname()[:2]))

    application = settings.application()
    listening = _listening(host, port)
    config = uvicorn.Config(
        application,
        # Not httptools: it loses the body of a request that offers an upgrade.
        http="h11",
        ws="none",
        lifespan="on",
        # Who a caller is told to be is the gateway's business.
        proxy_headers=False,
        server_header=False,
        date_header=False,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=math.ceil(settings.drain),
    )
    try:
        Server(config).run(sockets=[listening])
    except SystemExit:
        return False
    return True


def by_granian(settings: Settings, host: str, port: int, say: Callable[[str], None]) -> bool:
    """As `by_uvicorn`. The application is made in granian's own process, from the environment."""
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.log import LogLevels

    if port == 0:
        raise ConfigurationError("--listen: under granian a port has to be named")
    # What is wrong is said here, once, and not by a process that is started again and again.
    asyncio.run(_check(settings.application()))
    _listening(host, port).close()
    to_environment(settings)
    server = Granian(
        "twicesafe.gateway.settings:from_environment",
        factory=True,
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(keep_alive=True),
        websockets=False,
        log_level=LogLevels.warning,
        workers_kill_timeout=math.ceil(settings.drain) * 2,
    )
    say(_address(host, port))
    server.serve()
    return True


async def _check(gateway: Gateway) -> None:
    """SchemaError where the store's tables are missing. One that cannot be reached prevents nothing."""
    with contextlib.suppress(StoreUnavailableError):
        await gateway.check()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(f"--listen: {host}:{port} cannot be listened on: {error.strerror or error}") from None
    listening.setblocking(False)
    return listening


SERVERS: Final[dict[str, Callable[[Settings, str, int, Callable[[str], None]], bool]]] = {
    "uvicorn": by_uvicorn,
    "granian": by_granian,
}
"""By the name that the command line takes. Given the settings, host and port, and what to call with the address once
requests are taken there."""
