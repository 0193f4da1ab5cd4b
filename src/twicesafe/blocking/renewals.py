"""Leases are renewed while their work runs (R12): by one thread for all claims of a process, not one for each.

Renewals are made beside it, so that one for which the store takes long costs no other claim its lease.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final
from weakref import WeakSet

from twicesafe.core.record import Micros, Ownership
from twicesafe.core.renewal import look_after, renew_after
from twicesafe.elapsed import elapsed
from twicesafe.errors import LeaseLostError, StoreError
from twicesafe.observe import log_fault
from twicesafe.stores.contract import Store

_log: Final = logging.getLogger("twicesafe")


class _Watched:
    """One claim. Changed in place: whoever put it back under its ownership could put it back after its end."""

    __slots__ = ("due", "for_us", "lease_us", "renewed", "underway", "until")

    def __init__(self, lease_us: Micros, for_us: Micros) -> None:
        self.lease_us = lease_us
        self.for_us = for_us
        self.until = 0.0
        self.due: float | None = None
        """None until the thread has seen it once."""
        self.renewed: float | None = None
        """When its last renewal began, by the clock of `elapsed`."""
        self.underway = False
        """Its renewal is being made, or waits for that."""

    def put_off(self, now: float) -> None:
        self.due = now + renew_after(self.lease_us)


class Renewals:
    """The live claims of one process, each renewed at a third of its lease until it is forgotten, or given up.

    What is given up is told as lost, as it will be to whoever still works on it.

    The thread begins with a claim and ends when it finds none, so it costs a server under load nothing, and an idle one
    a thread's start at most once in a look. It is a daemon: a process that ends leaves its claims to their leases.
    """

    def __init__(
        self, store: Store, lost: Callable[[Ownership], None], *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._store = store
        self._lost = lost
        self._clock = clock
        self._begin_anew()
        _all.add(self)

    def _begin_anew(self) -> None:
        self._live: dict[Ownership, _Watched] = {}
        self._changing = Lock()
        """Held where the thread begins or ends."""
        self._running = False
        self._shortest: Micros = 0
        self._sooner = Event()
        self._waiting: deque[tuple[Ownership, _Watched]] = deque()
        self._at_work: set[object] = set()
        """One for each thread that renews what waits."""

    def watch(self, own: Ownership, lease_us: Micros, for_us: Micros) -> None:
        """Renew this claim from now on, for so long at most."""
        self._live[own] = _Watched(lease_us, for_us)
        if not self._running or lease_us < self._shortest:
            self._begin(lease_us)

    def forget(self, own: Ownership) -> None:
        """The claim is settled, one way or another."""
        self._live.pop(own, None)

    def renewed(self, own: Ownership) -> float | None:
        """When the last renewal of this claim began, by the clock of `elapsed`; None where there was none."""
        watched = self._live.get(own)
        return None if watched is None else watched.renewed

    def _begin(self, lease_us: Micros) -> None:
        with self._changing:
            if self._running:
                self._shortest = min(self._shortest, lease_us)
                self._sooner.set()
                return
            self._shortest = lease_us
            self._running = True
            try:
                Thread(target=self._run, name="twicesafe-renewals", daemon=True).start()
            except RuntimeError as error:
                # No more threads, or the interpreter is ending. The lease lasts as long as it lasts.
                self._running = False
                _log.warning("leases are not renewed, because no thread can be started: %s", error)

    def _run(self) -> None:
        while True:
            self._sooner.wait(look_after(self._shortest))
            self._sooner.clear()
            self._look()
            with self._changing:
                # First this, then a look: who watches does it the other way round, so one of the two sees the other.
                self._running = False
                live = list(self._live.values())
                if not live:
                    return
                self._running = True
                self._shortest = min(watched.lease_us for watched in live)

    def _look(self) -> None:
        now = self._clock()
        left = len(self._waiting)
        for own, watched in list(self._live.items()):
            if watched.due is None:
                watched.put_off(now)
                watched.until = now + watched.for_us / 1_000_000
            elif watched.until <= now:
                if self._live.pop(own, None) is not None:
                    self._lost(own)
            elif watched.due <= now and not watched.underway:
                watched.underway = True
                self._waiting.append((own, watched))
        # One thread does it, unless it waits for the store: while some are left from the last look, twice as many.
        at_work = len(self._at_work)
        more = (at_work if left else 0) if at_work else 1
        for _ in range(min(more, len(self._waiting))):
            self._send_for_one()

    def _send_for_one(self) -> None:
        me = object()
        self._at_work.add(me)
        try:
            Thread(target=self._renew_waiting, args=(me,), name="twicesafe-renewal", daemon=True).start()
        except RuntimeError:
            # No more threads: then here.
            self._renew_waiting(me)

    def _renew_waiting(self, me: object) -> None:
        try:
            while True:
                try:
                    own, watched = self._waiting.popleft()
                except IndexError:
                    return
                try:
                    self._renew(own, watched)
                finally:
                    watched.underway = False
        finally:
            self._at_work.discard(me)

    def _renew(self, own: Ownership, watched: _Watched) -> None:
        """What fails stays due and is tried again at the next look: the lease has two thirds left."""
        if own not in self._live:
            return
        began = elapsed()
        try:
            self._store.renew(own, watched.lease_us)
        except LeaseLostError:
            if self._live.pop(own, None) is not None:
                self._lost(own)
        except StoreError:
            pass
        except Exception as error:  # noqa: BLE001 - a store's own mistake must not end the renewals of others
            log_fault("a lease could not be renewed", error)
        else:
            watched.put_off(self._clock())
            watched.renewed = began


_all: Final[WeakSet[Renewals]] = WeakSet()


def _forked() -> None:
    """A child has its parent's memory and none of its threads, and the parent's claims are the parent's."""
    for renewals in list(_all):
        renewals._begin_anew()  # noqa: SLF001 - of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
