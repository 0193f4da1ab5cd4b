"""Leases are renewed while their work runs (R12): one timer for all claims of a process, not one for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from twicesafe.core.record import Micros, Ownership
from twicesafe.errors import LeaseLostError, StoreError
from twicesafe.stores.contract import AsyncStore

_log: Final = logging.getLogger("twicesafe")

RENEW_AT: Final = 3
"""At a third of the lease: two renewals may fail before anybody takes over."""
LOOKS: Final = 4
"""How often the timer looks in a third of the shortest lease. Most claims are over before it looks once."""


class Renewals:
    """The live claims of one event loop, each renewed at a third of its lease until it is forgotten."""

    def __init__(self, store: AsyncStore, lost: Callable[[Ownership], None]) -> None:
        self._store = store
        self._lost = lost
        self._live: dict[Ownership, tuple[Micros, float | None]] = {}
        """When each claim is due; None until the timer has seen it once."""
        self._shortest: Micros = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: dict[Ownership, asyncio.Task[None]] = {}
        """One after the other, a slow renewal would cost the others their leases."""

    def watch(self, own: Ownership, lease_us: Micros, loop: asyncio.AbstractEventLoop) -> None:
        """Renew this claim from now on."""
        self._live[own] = (lease_us, None)
        if self._loop is not loop:
            self._renewing.clear()
        if self._timer is None or self._loop is not loop or lease_us < self._shortest:
            self._shortest = lease_us
            self._arm(loop)

    def forget(self, own: Ownership) -> None:
        """The claim is settled, one way or another."""
        self._live.pop(own, None)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None and self._loop is loop:
            self._timer.cancel()
        self._loop = loop
        self._timer = loop.call_later(_third(self._shortest) / LOOKS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._live:
            return
        self._shortest = min(lease_us for lease_us, _ in self._live.values())
        now = loop.time()
        for own, (lease_us, due) in self._live.items():
            if due is None:
                # It has lived between nothing and one look.
                self._live[own] = (lease_us, now + _third(lease_us) * (LOOKS - 1) / LOOKS)
            elif due <= now and own not in self._renewing:
                self._renewing[own] = loop.create_task(self._renew(own, lease_us, loop))
        self._arm(loop)

    async def _renew(self, own: Ownership, lease_us: Micros, loop: asyncio.AbstractEventLoop) -> None:
        """What fails stays due and is tried again at the next look: the lease has two thirds left."""
        try:
            async with asyncio.timeout(_third(lease_us)):
                await self._store.renew(own, lease_us)
            if own in self._live:
                self._live[own] = (lease_us, loop.time() + _third(lease_us) * (LOOKS - 1) / LOOKS)
        except LeaseLostError:
            if self._live.pop(own, None) is not None:
                self._lost(own)
        except (StoreError, TimeoutError):
            pass
        except Exception:  # noqa: BLE001 - a store's own mistake must not end the renewals of others
            _log.exception("a lease could not be renewed")
        finally:
            self._renewing.pop(own, None)


def _third(lease_us: Micros) -> float:
    """A third of the lease, in seconds."""
    return lease_us / 1_000_000 / RENEW_AT
