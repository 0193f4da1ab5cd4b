"""One thread renews all claims of a process, begins when there is one, and ends when there is none."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from threading import Event, Semaphore
from typing import Any, ClassVar

import pytest

from twicesafe.blocking import renewals as module
from twicesafe.blocking.renewals import Renewals
from twicesafe.core.record import Ownership
from twicesafe.errors import LeaseLostError, StoreUnavailableError

LEASE_US = 30_000_000
HOUR_US = 3_600_000_000
PATIENCE = 30.0


class Store:
    """Renewals of the owners named in `how` fail; `asked` is set at each."""

    def __init__(self, how: dict[bytes, BaseException] | None = None) -> None:
        self.how = how or {}
        self.renewed: list[bytes] = []
        self.asked = Event()

    def renew(self, own: Ownership, lease_us: int) -> None:
        self.asked.set()
        fault = self.how.get(own.owner)
        if fault is not None:
            raise fault
        self.renewed.append(own.owner)


class NoThread:
    """Stands where the thread would be, so that a test looks when it wants to; renewals are made at once."""

    begun: ClassVar[list[NoThread]] = []

    def __init__(self, *, target: Any, name: str, daemon: bool, args: tuple[Any, ...] = ()) -> None:
        self.renew = partial(target, *args) if name == "twicesafe-renewal" else None

    def start(self) -> None:
        if self.renew is None:
            self.begun.append(self)
        else:
            self.renew()


@pytest.fixture
def by_hand(monkeypatch):
    """Threads that are counted and do not run."""
    NoThread.begun = []
    monkeypatch.setattr(module, "Thread", NoThread)
    return NoThread.begun


def own(name: bytes) -> Ownership:
    return Ownership(name * 32, name, 1)


def make(store: Store, lost: list[Ownership]) -> tuple[Renewals, list[float]]:
    now = [0.0]
    return Renewals(store, lost.append, clock=lambda: now[0]), now


def test_a_claim_is_renewed_at_a_third_of_its_lease(by_hand):
    """R12: seen at 2.5 s, it is renewed at 10 s, again a third later, and not once it is forgotten."""
    store = Store()
    renewals, now = make(store, [])
    renewals.watch(own(b"a"), LEASE_US, HOUR_US)
    for seconds, renewed in ((2.5, 0), (5.0, 0), (7.5, 0), (10.0, 1), (12.5, 1), (15.0, 1), (17.5, 2)):
        now[0] = seconds
        renewals._look()
        assert len(store.renewed) == renewed, seconds
    renewals.forget(own(b"a"))
    now[0] = 60.0
    renewals._look()
    assert len(store.renewed) == 2


def test_what_hangs_is_given_up(by_hand):
    """R27: a claim is renewed for so long and no longer; its owner is told that it lost, once."""
    store, lost = Store(), []
    renewals, now = make(store, lost)
    renewals.watch(own(b"a"), LEASE_US, 60_000_000)
    for seconds in (2.5, 10.0, 62.4):
        now[0] = seconds
        renewals._look()
    assert len(store.renewed) == 2
    assert lost == []
    for seconds in (62.5, 75.0):
        now[0] = seconds
        renewals._look()
    assert len(store.renewed) == 2
    assert lost == [own(b"a")]


@pytest.mark.parametrize("fault", [StoreUnavailableError("down"), ZeroDivisionError()])
def test_one_claim_that_cannot_be_renewed_costs_the_others_nothing(by_hand, fault, caplog):
    """R12: failing or broken, it is tried again at the next look; every other claim is renewed."""
    store = Store({b"a": fault})
    lost: list[Ownership] = []
    renewals, now = make(store, lost)
    for name in (b"a", b"b"):
        renewals.watch(own(name), LEASE_US, HOUR_US)
    for seconds in (2.5, 10.0):
        now[0] = seconds
        renewals._look()
    assert store.renewed == [b"b"]
    del store.how[b"a"]
    now[0] = 12.5
    renewals._look()
    assert store.renewed == [b"b", b"a"]
    assert lost == []


def test_renewals_that_hang_cost_the_others_nothing():
    """R12: five for which the store takes as long as it may are due first; the fifty behind them keep their leases."""
    let_go, renewed = Event(), Semaphore(0)

    class Slow(Store):
        def renew(self, own: Ownership, lease_us: int) -> None:
            if own.owner == b"slow":
                let_go.wait(PATIENCE)
            elif own.owner not in self.renewed:
                super().renew(own, lease_us)
                renewed.release()

    renewals, now = make(Slow(), [])
    begun = [Ownership(b"%032d" % number, b"slow" if number < 5 else b"%d" % number, 1) for number in range(55)]
    try:
        for claim in begun:
            renewals._live[claim] = module._Watched(LEASE_US, HOUR_US)
        for seconds in (2.5, 10.0, 12.5, 15.0, 17.5):
            now[0] = seconds
            renewals._look()
        assert [renewed.acquire(timeout=PATIENCE) for _ in range(50)] == [True] * 50
        assert len(renewals._at_work) >= 5
    finally:
        let_go.set()


def test_a_lost_lease_is_told_once_and_no_longer_renewed(by_hand):
    """I3: the owner learns that it lost while it still runs."""
    lost: list[Ownership] = []
    renewals, now = make(Store({b"a": LeaseLostError("gone")}), lost)
    renewals.watch(own(b"a"), LEASE_US, HOUR_US)
    for seconds in (2.5, 10.0, 12.5):
        now[0] = seconds
        renewals._look()
    assert lost == [own(b"a")]
    assert not renewals._live


def test_a_claim_that_ends_while_it_is_renewed_is_neither_lost_nor_put_back(by_hand):
    """R12, I3: its owner has settled it, so the store knows no such claim any more, and that is no loss."""
    lost: list[Ownership] = []
    store = Store({b"a": LeaseLostError("settled")})
    renewals, now = make(store, lost)
    renewals.watch(own(b"a"), LEASE_US, HOUR_US)
    renewals._look()
    plain = store.renew

    def settled_meanwhile(claim: Ownership, lease_us: int) -> None:
        renewals.forget(claim)
        plain(claim, lease_us)

    store.renew = settled_meanwhile
    now[0] = 10.0
    renewals._look()
    assert lost == [] and not renewals._live
    del store.how[b"a"]
    renewals.watch(own(b"a"), LEASE_US, HOUR_US)
    renewals._look()
    now[0] = 20.0
    renewals._look()
    assert store.renewed == [b"a"] and not renewals._live


def test_a_thousand_claims_begin_one_thread(by_hand):
    """R12: not a thread or a timer for each."""
    renewals, _ = make(Store(), [])
    for number in range(1000):
        renewals.watch(Ownership(b"%032d" % number, b"x", 1), LEASE_US, HOUR_US)
    assert len(by_hand) == 1


def test_the_thread_renews_and_ends_when_nothing_is_left():
    """R12: really started, it renews; once its claims are settled it ends, and the next claim begins another."""
    store = Store()
    renewals = Renewals(store, lambda _: None)
    for _ in range(2):
        store.asked.clear()
        others = set(threading.enumerate())
        renewals.watch(own(b"a"), 10_000, HOUR_US)
        (thread,) = (each for each in set(threading.enumerate()) - others if each.name == "twicesafe-renewals")
        assert store.asked.wait(PATIENCE)
        renewals.forget(own(b"a"))
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert not renewals._running


def test_a_shorter_lease_is_not_made_to_wait_for_a_longer_ones_look():
    """R12: a lease of milliseconds that comes while the thread sleeps for an hour's is renewed in its own time."""
    store = Store()
    renewals = Renewals(store, lambda _: None)
    renewals.watch(own(b"a"), 3_600_000_000, HOUR_US)
    renewals.watch(own(b"b"), 10_000, HOUR_US)
    assert store.asked.wait(PATIENCE)
    assert set(store.renewed) == {b"b"}
    renewals.forget(own(b"a"))
    renewals.forget(own(b"b"))


FORKING = """
import os, sys
from tests.shells.test_blocking_renewals import HOUR_US, PATIENCE, Store, own
from twicesafe.blocking.renewals import Renewals

store = Store()
renewals = Renewals(store, print)
renewals.watch(own(b"a"), 3_600_000_000, HOUR_US)
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or len(renewals._live) - 1)
renewals.watch(own(b"b"), 10_000, HOUR_US)
assert store.asked.wait(PATIENCE) and own(b"a") not in renewals._live
os._exit(set(store.renewed) != {b"b"})
"""


def test_a_forked_child_renews_its_own_claims_and_none_of_its_parents():
    """R12: servers fork after the application is made; no thread survives that, and no claim changes hands."""
    # In a process of its own, where nobody minds that it has threads when it forks.
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], timeout=PATIENCE, check=False)
    assert done.returncode == 0


def test_without_a_thread_the_work_goes_on(monkeypatch, caplog):
    """R12: where no thread can be started, a claim lives as long as its lease, and the log says so; where only the
    thread that looks is left, it renews."""

    class Refused(NoThread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "Thread", Refused)
    renewals, _ = make(Store(), [])
    renewals.watch(own(b"a"), LEASE_US, HOUR_US)
    assert "leases are not renewed" in caplog.text
    assert not renewals._running
    store = Store()
    renewals, now = make(store, [])
    renewals._live[own(b"a")] = module._Watched(LEASE_US, HOUR_US)
    for seconds in (2.5, 10.0):
        now[0] = seconds
        renewals._look()
    assert store.renewed == [b"a"] and not renewals._at_work
