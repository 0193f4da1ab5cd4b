"""What people reported of other implementations, tried on functions and on operations of several steps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from tests.functions.shop import WINDOW, K, Shop
from tests.functions.ways import Ledger, Way
from twicesafe.core.policy import Policy
from twicesafe.errors import ConfigurationError, InProgressError, InvalidKeyError, OutcomeUnknownError
from twicesafe.once import current

LEASE = timedelta(seconds=30)
SHORTEST = timedelta(microseconds=1)
ALL = ["reserve", "charged ch_1", "paid ch_2", "end"]


# --- leases ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effects", ["keyed", "opaque", "resumable"])
@pytest.mark.parametrize("lease", [None, 0, timedelta(0), timedelta(seconds=-1), timedelta(milliseconds=1)], ids=str)
def test_a_lease_that_cannot_be_meant_is_refused(way: Way, effects: str, lease: Any) -> None:
    """B1: where the function is declared: none is not "free now", and nought is not "for ever"."""
    with pytest.raises(ConfigurationError, match="lease"):
        way.once.operation(key=lambda: K, effects=effects, lease=lease)(way.own(lambda: None))
    assert len(way.records) == 0


@pytest.mark.parametrize("effects", ["keyed", "opaque"])
@pytest.mark.parametrize("lease", [timedelta(milliseconds=100), LEASE], ids=str)
def test_who_holds_a_lease_is_alone_to_its_last_moment(
    way: Way, ledger: Ledger, effects: str, lease: timedelta
) -> None:
    """B1, B5, I1: until its end rivals are refused; from its end on the work is free, or unknown, and not later."""
    policy = Policy(lease=lease, effects=effects)  # type: ignore[arg-type]
    once = way.make(policy)
    contract = once._contract(way.own(ledger.charge), None, policy, (), ())
    # Its process was killed as soon as it had claimed.
    way.records.claim(once._claim(contract, K, "jobs", ("ann",), {}))
    way.once = once
    for moment in (timedelta(0), lease - SHORTEST):
        way.clock.advance(moment)
        with pytest.raises(InProgressError):
            way.call(K, ledger.charge, "ann")
    assert ledger.rows == []
    way.clock.advance(SHORTEST)
    if effects == "keyed":
        assert way.call(K, ledger.charge, "ann").id == "ch_1"
    else:
        with pytest.raises(OutcomeUnknownError):
            way.call(K, ledger.charge, "ann")
    assert len(ledger.rows) == (effects == "keyed")


# --- late owners -----------------------------------------------------------------------------------------------------


class Late:
    """The first to come is slow: it goes on when the second, which took over, is in the midst of its work."""

    def __init__(self, raises: type[Exception] | None) -> None:
        self.raises = raises
        self.began, self.may_go_on = Event(), Event()
        self.first: Future[Any] | None = None
        self.seen: list[Any] = []
        """What a third one is told meanwhile."""
        self.runs = 0

    def work(self, third: Callable[[], Any]) -> int:
        """Done by the first and by the second. Which of them it is."""
        self.runs += 1
        mine = self.runs
        if mine == 1:
            self.began.set()
            assert self.may_go_on.wait(30)
            if self.raises is not None:
                raise self.raises
        elif mine == 2:
            assert self.first is not None
            self.may_go_on.set()
            error = self.first.exception(timeout=30)
            assert isinstance(error, InProgressError | self.raises) if self.raises else error is not None
            try:
                third()
            except InProgressError as refused:
                self.seen.append(type(refused))
        return mine


@pytest.mark.parametrize("raises", [None, ValueError], ids=["gives", "raises"])
def test_who_finishes_late_frees_nobody_elses_key(way: Way, raises: type[Exception] | None) -> None:
    """B4, I3: the lease of the first is over and the second runs when the first comes to its end: a third is refused,
    and the second's result is the result."""
    way.once = way.make(Policy(effects="keyed", lease=LEASE))  # type: ignore[arg-type]
    late = Late(raises)
    charged: dict[str, int] = {}

    def call() -> Any:
        def work() -> int:
            mine = late.work(lambda: threads.submit(call).result(timeout=30))
            charged.setdefault(current().derived_key("charge"), mine)
            return mine

        return way.call(K, work)

    with ThreadPoolExecutor(2) as threads:
        late.first = threads.submit(call)
        assert late.began.wait(30)
        way.clock.advance(LEASE)
        told = call()
    assert len(charged) == 1
    assert late.runs == 2
    assert late.seen == [InProgressError]
    assert told == call() == 2


@pytest.mark.parametrize("raises", [None, ValueError], ids=["gives", "raises"])
def test_who_finishes_a_call_late_moves_nothing(shop: Shop, raises: type[Exception] | None) -> None:
    """B4, I3, I10: of two attempts at one operation the late one neither records what came of its call, nor frees the
    key while the other is at it."""
    late = Late(raises)

    def buy() -> Any:
        return shop.operation(shop.another(), remembers=WINDOW)(K, 100)

    def before() -> None:
        if len(shop.provider.charges) < 1:
            late.work(lambda: threads.submit(buy).result(timeout=30))

    shop.provider.before = before
    with ThreadPoolExecutor(2) as threads:
        late.first = threads.submit(buy)
        assert late.began.wait(30)
        shop.clock.advance(LEASE)
        told = buy()
    assert shop.rows() == ALL
    assert sorted(shop.provider.charges.values()) == [len(K), 100]
    assert late.seen == [InProgressError]
    assert told == buy() == "ch_1 ch_2"


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effects", ["keyed", "opaque", "resumable"])
@pytest.mark.parametrize("key", [None, "", 0, " "], ids=repr)
def test_an_operation_without_a_key_runs_neither_now_nor_later(
    way: Way, ledger: Ledger, effects: str, key: Any
) -> None:
    """G6: not unprotected, not under a key that it shares with others, and not again and again by a worker."""
    charge = way.once.operation(key=lambda customer: key, effects=effects)(
        way.own(lambda customer: ledger.charge(customer))
    )
    for _ in range(3):
        with pytest.raises(InvalidKeyError):
            way.end(charge("ann"))
    way.clock.advance(timedelta(days=1))
    assert way.end(way.once.resume())[:3] == (0, 0, 0)
    assert ledger.rows == []
    assert len(way.records) == 0
