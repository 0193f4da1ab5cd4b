"""Everybody who takes part in a storm beside the clients: servers, for operations of several steps workers and the
provider, and with an outbox relays and the consumer. And the provider's port, which stays the same when it is killed
and started again."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from twicesafe.storm.delivery import Delivery
from twicesafe.storm.fleet import Fleet
from twicesafe.storm.operation import WINDOW
from twicesafe.storm.plan import BlowKind

WORKERS: Final = 2
"""One goes on while the other is down."""


class Company:
    """The fleets of one storm. `told` is what all processes are told; the provider keeps its ledger in `charges`.

    Without a `provider_port` there are servers only. A naive service has no workers: it knows nothing they could do.
    """

    def __init__(
        self,
        servers: int,
        told: dict[str, Any],
        log: Path,
        struck: Callable[[str], None],
        charges: Path,
        provider_port: int | None,
        delivery: Delivery | None,
    ) -> None:
        told = {**told, "provider": provider_port, "events": None if delivery is None else delivery.port}
        self._delivery = delivery
        self.servers = Fleet(servers, told, log, struck)
        self.provider: Fleet | None = None
        self.workers: Fleet | None = None
        if provider_port is not None:
            books = {"file": str(charges), "window": WINDOW.total_seconds(), "port": provider_port}
            death = BlowKind.SIGKILL_PROVIDER
            self.provider = Fleet(1, books, log, struck, kind="provider", death=death)
            if not told["naive"]:
                self.workers = Fleet(WORKERS, told, log, struck, kind="worker", death=BlowKind.SIGKILL_WORKER)

    async def start(self) -> None:
        """Start all of them, the provider first."""
        if self.provider is not None:
            await self.provider.start()
        await asyncio.gather(*(fleet.start() for fleet in self._users()))

    async def close(self) -> None:
        """End all of them. Safe to call twice."""
        await asyncio.gather(*(fleet.close() for fleet in self._all()))

    async def kill(self, kind: BlowKind, victim: int) -> None:
        """SIGKILL one of those that this kind of blow is about, if there are any. See Fleet.kill."""
        fleets = {
            BlowKind.SIGKILL: self.servers,
            BlowKind.SIGKILL_WORKER: self.workers,
            BlowKind.SIGKILL_PROVIDER: self.provider,
            BlowKind.SIGKILL_RELAY: None if self._delivery is None else self._delivery.relays,
            BlowKind.SIGKILL_CONSUMER: None if self._delivery is None else self._delivery.consumer,
        }
        fleet = fleets[kind]
        if fleet is not None:
            await fleet.kill(victim)

    async def restart_all(self) -> None:
        """End all that have the database open, and when the last is gone start them again."""
        await asyncio.gather(*(fleet.down() for fleet in self._users()))
        for fleet in self._users():
            fleet.up()

    def deaths(self) -> Counter[str]:
        """By SIGKILL, and at which armed points."""
        return sum((fleet.deaths for fleet in self._all()), Counter())

    def noted(self) -> Counter[str]:
        """What servers and workers said is to be counted."""
        return sum((fleet.noted for fleet in self._users()), Counter())

    def _users(self) -> list[Fleet]:
        """Of the database."""
        relays = None if self._delivery is None else self._delivery.relays
        return [fleet for fleet in (self.servers, self.workers, relays) if fleet is not None]

    def _all(self) -> list[Fleet]:
        return self._users() if self.provider is None else [*self._users(), self.provider]


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 that nobody else gets, for a process that listens on it, dies, and comes back.

    While it is away, connections are refused: this socket is bound and does not listen.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
