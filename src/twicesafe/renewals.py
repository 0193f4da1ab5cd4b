"""Leases are renewed while their work runs (R12): one timer for all claims of a process, not one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from twicesafe.core.record import Micros, Ownership
from twicesafe.core.renewal import look_after, renew_after, third
from twicesafe.elapsed import elapsed
from twicesafe.errors import LeaseLostError, StoreError
from twicesafe.observe import log_fault
from twicesafe.stores.contract import AsyncStore


class _Watched(NamedTuple):
    lease_us: Micros
    for_us: Micros
    due: float | None
    """None until the timer has seen it once."""
    until: float
    renewed: float | None = None
    """When its last renewal began, by the clock of `elapsed`."""


class Renewals:
    """The live claims of one event loop, each renewed at a third of its lease until it is forgotten, or given up.

    What is given up is told as lost, as it will be to whoever still works on it.
    """

    def __init__(self, store: AsyncStore, lost: Callable[[Ownership], None]) -> None:
        self._store = store
        self._lost = lost
        self._live: dict[Ownership, _Watched] = {}
        self._shortest: Micros = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: dict[Ownership, asyncio.Task[None]] = {}
        """One after the other, a slow renewal would cost the others their leases."""

    def watch(self, own: Ownership, lease_us: Micros, for_us: Micros, loop: asyncio.AbstractEventLoop) -> None:
        """Renew this claim from now on, for so long at most."""
        self._live[own] = _Watched(lease_us, for_us, None, 0.0)
        if self._loop is not loop:
            self._renewing.clear()
        if self._timer is None or self._loop is not loop or lease_us < self._shortest:
            self._shortest = lease_us
            self._arm(loop)

    def forget(self, own: Ownership) -> None:
        """The claim is settled, one way or another."""
        self._live.pop(own, None)

    def renewed(self, own: Ownership) -> float | None:
        """When the last renewal of this claim began, by the clock of `elapsed`; None where there was none."""
        watched = self._live.get(own)
        return None if watched is None else watched.renewed

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None and self._loop is loop:
            self._timer.cancel()
        self._loop = loop
        self._timer = loop.call_later(look_after(self._shortest), self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._live:
            return
        self._shortest = min(watched.lease_us for watched in self._live.values())
        now = loop.time()
        for own, watched in list(self._live.items()):
            if watched.due is None:
                due = now + renew_after(watched.lease_us)
                self._live[own] = watched._replace(due=due, until=now + watched.for_us / 1_000_000)
            elif watched.until <= now:
                del self._live[own]
                self._lost(own)
            elif watched.due <= now and own not in self._renewing:
                self._renewing[own] = loop.create_task(self._renew(own, watched, loop))
        self._arm(loop)

    async def _renew(self, own: Ownership, watched: _Watched, loop: asyncio.AbstractEventLoop) -> None:
        """What fails stays due and is tried again at the next look: the lease has two thirds left."""
        lease_us = watched.lease_us
        began = elapsed()
        try:
            async with asyncio.timeout(third(lease_us)):
                await self._store.renew(own, lease_us)
            if own in self._live:
                self._live[own] = watched._replace(due=loop.time() + renew_after(lease_us), renewed=began)
        except LeaseLostError:
            if self._live.pop(own, None) is not None:
                self._lost(own)
        except (StoreError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - a store's own mistake must not end the renewals of others
            log_fault("a lease could not be renewed", error)
        finally:
            self._renewing.pop(own, None)
