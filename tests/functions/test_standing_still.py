"""A process that stands still between writing a call down and sending it, and goes on when others have gone on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tests.functions.ways import WAYS, Way
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects, Ownership
from twicesafe.errors import CallRefusedError, LeaseLostError, StoreError
from twicesafe.once import NotDone, current
from twicesafe.testing import ManualClock

K = "order-77"
DAY = timedelta(days=1)
LEASE = Policy().lease


class Time:
    """This process's own clock, and the store's: both go on while it stands still."""

    def __init__(self, store: ManualClock) -> None:
        self.store = store
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def passes(self, by: timedelta) -> None:
        self.seconds += by.total_seconds()
        self.store.advance(by)


class Rig:
    """An operation of one call, to a provider that knows keys for a day, or not at all."""

    def __init__(self, way: type[Way], monkeypatch: pytest.MonkeyPatch, *, looks_up: bool = False) -> None:
        self.way = way()
        self.time = Time(self.way.clock)
        for module in ("called", "resuming"):
            monkeypatch.setattr(f"twicesafe.{module}.elapsed", self.time)
        self.charges: list[int] = []
        self.before_it_sends: Callable[[], None] = lambda: None
        self.renewed: list[Ownership] = []
        records = self.way.records
        advance, renew = records.advance, records.renew

        def advanced(own: Ownership, seen: str | None, point: str, data: bytes) -> None:
            advance(own, seen, point, data)
            pause, self.before_it_sends = self.before_it_sends, lambda: None
            pause()

        def renewed(own: Ownership, lease_us: int) -> None:
            self.renewed.append(own)
            renew(own, lease_us)

        records.advance = advanced  # type: ignore[method-assign]
        records.renew = renewed  # type: ignore[method-assign]
        self.call: dict[str, Any] = {"remembers": None if looks_up else DAY}
        if looks_up:
            self.call["look_up"] = self.own(lambda key: NotDone())

    def own(self, function: Callable[..., Any]) -> Any:
        return self.way.own(function)

    def charge(self, key: str) -> int:
        self.charges.append(1)
        return len(self.charges)

    def buy(self, before: Callable[[], None] = lambda: None) -> Any:
        """One attempt, in a process of its own as it were."""
        send = self.own(self.charge)
        if self.way.asynchronous:

            async def buy() -> Any:
                before()
                return await current().call("charge", send, **self.call)

        else:

            def buy() -> Any:
                before()
                return current().call("charge", send, **self.call)

        operation = self.way.make().operation(key=lambda: K, name="buy", effects=Effects.RESUMABLE)(buy)
        return self.way.end(operation())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("looks_up", [False, True])
def test_it_sends_nothing_after_somebody_else_has(way: Any, monkeypatch: Any, *, looks_up: bool) -> None:
    """R25, I3: it stood still for longer than its lease; another attempt went on and sent, and by now the provider has
    forgotten the key, or knows none at all."""
    rig = Rig(way, monkeypatch, looks_up=looks_up)

    def stands_still() -> None:
        rig.time.passes(LEASE)
        # In a thread of its own: this one is inside a loop.
        assert _elsewhere(rig.buy) == 1
        rig.time.passes(DAY * 2)

    rig.before_it_sends = stands_still
    with pytest.raises((CallRefusedError, LeaseLostError)):
        rig.buy()
    assert rig.charges == [1]


@pytest.mark.parametrize("way", WAYS)
def test_it_proves_that_nothing_was_sent(way: Any, monkeypatch: Any) -> None:
    """R35, R25: nobody has taken it over, so it is written down as never sent, and the next attempt sends it, whatever
    the provider may have forgotten by then."""
    rig = Rig(way, monkeypatch)
    rig.call["remembers"] = timedelta(minutes=1)
    rig.before_it_sends = lambda: rig.time.passes(LEASE)
    with pytest.raises(CallRefusedError, match="stood still"):
        rig.buy()
    assert rig.charges == []
    rig.time.passes(DAY / 2)
    assert rig.buy() == 1
    assert rig.charges == [1]


@pytest.mark.parametrize("way", WAYS)
def test_a_lease_that_is_running_out_is_renewed_before_the_call_is_written_down(way: Any, monkeypatch: Any) -> None:
    """R12, R25: so that it is late only if it stands still for half a lease behind that; and where most of the lease is
    left, it costs nothing."""
    rig = Rig(way, monkeypatch)
    assert rig.buy(before=lambda: rig.time.passes(LEASE / 2)) == 1
    assert rig.renewed == []
    rig = Rig(way, monkeypatch)
    rig.before_it_sends = lambda: rig.time.passes(LEASE * 0.9)
    assert rig.buy(before=lambda: rig.time.passes(LEASE * 0.9)) == 1
    assert len(rig.renewed) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_claim_that_was_lost_meanwhile_is_noticed_before_the_call_is_written_down(way: Any, monkeypatch: Any) -> None:
    """I3, R25: it stood still before; its call is somebody else's, and is made once."""
    rig = Rig(way, monkeypatch)
    first = [True]

    def stands_still() -> None:
        if first.pop():
            first.append(False)
            rig.time.passes(LEASE)
            assert _elsewhere(rig.buy) == 1
        else:
            first.append(False)

    with suppress(StoreError):
        rig.buy(before=stands_still)
    assert rig.charges == [1]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_sent_again_begins_within_what_is_left_of_the_window(way: Any, monkeypatch: Any) -> None:
    """R25, I12: the store's clock was read in time, and then the process stood still until the provider had forgotten
    the key; its lease lasts longer than that."""
    rig = Rig(way, monkeypatch)
    rig.way.policy = Policy(lease=timedelta(hours=3))
    charge, broke_off = rig.charge, []

    def breaks_off(key: str) -> int:
        charge(key)
        if not broke_off:
            broke_off.append(key)
            raise TimeoutError
        return 1

    rig.charge = breaks_off  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        rig.buy()
    rig.time.passes(DAY - timedelta(minutes=2))
    now = rig.way.records.now

    def read_in_time() -> int:
        told = now()
        rig.time.passes(timedelta(minutes=2))
        return told

    monkeypatch.setattr(rig.way.records, "now", read_in_time)
    with pytest.raises(CallRefusedError):
        rig.buy()
    assert rig.charges == [1]


def _elsewhere(work: Callable[[], Any]) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(60)
