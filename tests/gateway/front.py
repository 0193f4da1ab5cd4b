"""A server in front of which each test puts a gateway of its own, so that the server is started once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import uvicorn

from tests.gateway.scripted import PATIENCE, Caller, Service
from twicesafe import Policy
from twicesafe.gateway import CallerHeader, Gateway, Timeouts, Upstream
from twicesafe.observe import Event
from twicesafe.stores.memory import AsyncMemoryStore


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Front:
    """uvicorn in a thread, as `twicesafe gateway` configures it. What it serves is `gateway`."""

    def __init__(self) -> None:
        self.gateway: Any = None
        self.loop = asyncio.new_event_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        config = uvicorn.Config(
            self._serve, interface="asgi3", http="h11", ws="none", lifespan="off", log_level="error", date_header=False,
            server_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = _Server(config)
        self._thread = threading.Thread(
            target=self.loop.run_until_complete, args=(self._server.serve(sockets=[listening]),)
        )
        self._thread.start()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        await self.gateway(scope, receive, send)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """In the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self.loop.close()


class Rig(Caller):
    """A gateway, the service behind it, and callers in front."""

    def __init__(self, front: Front, service: Service) -> None:
        super().__init__(front.port)
        self.front = front
        self.service = service
        self.events: list[Event] = []
        self._time = itertools.count(1_000_000_000_000_000)
        self.store = AsyncMemoryStore(clock=lambda: next(self._time))
        self.upstream: Upstream | None = None
        self.set_up()

    def set_up(
        self,
        policy: Policy | None = None,
        *,
        caller: Any = None,
        url: str = "",
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - immutable
        connections: int = 100,
        keep_alive: float = 60.0,
        **more: Any,
    ) -> None:
        """Another gateway, on the same store."""
        self.close()
        self.upstream = Upstream(
            url or self.service.url, timeouts=timeouts, connections=connections, keep_alive=keep_alive
        )
        if policy is not None:
            more["policy"] = policy
        self.front.gateway = Gateway(
            self.upstream, self.store, caller=caller or CallerHeader("X-User-Id"), observer=self.events.append, **more
        )

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.events]

    def drained(self) -> None:
        """Wait for work whose caller is gone."""
        self.front.run(self.front.gateway.drained())

    def close(self) -> None:
        if self.upstream is not None:
            self.front.run(self.upstream.aclose())
