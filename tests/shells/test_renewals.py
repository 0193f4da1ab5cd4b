"""Renewals do not wait for one another, and no fault of one ends the others."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from twicesafe.core.record import Ownership
from twicesafe.errors import LeaseLostError, StoreUnavailableError
from twicesafe.renewals import Renewals

LEASE_US = 30_000_000
HOUR_US = 3_600_000_000


class Store:
    """Renewals of the owners named in `how` wait or fail."""

    def __init__(self, how: dict[bytes, Any]) -> None:
        self.how = how
        self.renewed: list[bytes] = []

    async def renew(self, own: Ownership, lease_us: int) -> None:
        fault = self.how.get(own.owner)
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            await fault.wait()
        self.renewed.append(own.owner)


def own(name: bytes) -> Ownership:
    return Ownership(name * 32, name, 1)


async def look(renewals: Renewals) -> None:
    """Have every claim be due, and the timer look."""
    for each, watched in list(renewals._live.items()):
        renewals._live[each] = watched._replace(due=0.0, until=watched.until or math.inf)
    renewals._look(asyncio.get_running_loop())
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "fault", [asyncio.Event, lambda: StoreUnavailableError("down"), lambda: ZeroDivisionError(), lambda: TimeoutError()]
)
def test_one_claim_that_cannot_be_renewed_costs_the_others_nothing(fault, caplog):
    """R12: slow, failing or broken, it is tried again at the next look; every other claim is renewed at each."""

    async def trial():
        store = Store({b"a": fault()})
        lost: list[Ownership] = []
        renewals = Renewals(store, lost.append)
        for name in (b"a", b"b"):
            renewals.watch(own(name), LEASE_US, HOUR_US, asyncio.get_running_loop())
        await look(renewals)
        await look(renewals)
        assert store.renewed == [b"b", b"b"]
        slow = store.how.pop(b"a")
        if isinstance(slow, asyncio.Event):
            slow.set()
        await look(renewals)
        assert b"a" in store.renewed
        assert lost == []
        for name in (b"a", b"b"):
            renewals.forget(own(name))

    asyncio.run(trial())


def test_a_lost_lease_is_told_once_and_no_longer_renewed():
    """I3: the owner learns that it lost while it still runs."""

    async def trial():
        store = Store({b"a": LeaseLostError("gone")})
        lost: list[Ownership] = []
        renewals = Renewals(store, lost.append)
        renewals.watch(own(b"a"), LEASE_US, HOUR_US, asyncio.get_running_loop())
        await look(renewals)
        await look(renewals)
        assert lost == [own(b"a")]
        assert not renewals._live

    asyncio.run(trial())


def test_what_hangs_is_given_up():
    """R27: a claim is renewed for so long and no longer; its owner is told that it lost, once."""

    async def trial():
        store = Store({})
        lost: list[Ownership] = []
        renewals, loop = Renewals(store, lost.append), asyncio.get_running_loop()
        renewals.watch(own(b"a"), LEASE_US, 0, loop)
        renewals.watch(own(b"b"), LEASE_US, HOUR_US, loop)
        renewals._look(loop)
        await look(renewals)
        await look(renewals)
        assert store.renewed == [b"b", b"b"]
        assert lost == [own(b"a")]
        renewals.forget(own(b"b"))

    asyncio.run(trial())
