"""Leases are renewed while their work runs (R12): one timer for all claims of a process, not one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from twicesafe.core.record import Micros, Ownership
from twicesafe.errors import LeaseLostError, StoreError
from twicesafe.stores.contract import AsyncStore

RENEW_AT: Final = 3
"""At a third of the lease: two renewals may fail before anybody takes over."""


class Renewals:
    """The live claims of one event loop, each renewed at a third of its lease until it is forgotten."""

    def __init__(self, store: AsyncStore, lost: Callable[[Ownership], None]) -> None:
        self._store = store
        self._lost = lost
        self._live: dict[Ownership, tuple[Micros, float]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self, own: Ownership, lease_us: Micros, loop: asyncio.AbstractEventLoop) -> None:
        """Renew this claim from now on. The timer stays armed between claims, so that most cost nothing."""
        period = lease_us / 1_000_000 / RENEW_AT
        due = loop.time() + period
        self._live[own] = (lease_us, due)
        if self._loop is not loop:
            self._loop, self._timer = loop, None
        if self._timer is None or self._timer.when() > due:
            self._arm(loop, due)

    def forget(self, own: Ownership) -> None:
        """The claim is settled, one way or another."""
        self._live.pop(own, None)

    def _arm(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(due, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._live and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._renew_due(loop))

    async def _renew_due(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for own, (lease_us, due) in list(self._live.items()):
            if due > now or own not in self._live:
                continue
            try:
                await self._store.renew(own, lease_us)
            except LeaseLostError:
                if self._live.pop(own, None) is not None:
                    self._lost(own)
            except StoreError:
                # Tried again soon: the lease has two thirds left.
                self._put_off(own, lease_us, loop.time() + lease_us / 1_000_000 / RENEW_AT / 4)
            else:
                self._put_off(own, lease_us, loop.time() + lease_us / 1_000_000 / RENEW_AT)
        if self._live:
            self._arm(loop, min(due for _, due in self._live.values()))

    def _put_off(self, own: Ownership, lease_us: Micros, due: float) -> None:
        if own in self._live:
            self._live[own] = (lease_us, due)
