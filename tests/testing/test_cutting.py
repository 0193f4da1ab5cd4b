"""Lives that are cut at every place, on operations that are safe and on some that are not."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from twicesafe.errors import ConfigurationError
from twicesafe.once import AsyncOnce, Once, current
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import Life, ManualClock, acut_everywhere, cut_everywhere

LEASE = timedelta(seconds=31)


class Market:
    """A provider that knows its keys, and a database of one's own."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.charges: dict[str, int] = {}
        self.sent: list[str] = []
        self.clock = ManualClock()
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT)")

    def charge(self, key: str) -> int:
        self.sent.append(key)
        return self.charges.setdefault(key, len(self.charges) + 1)

    def orders(self) -> int:
        with closing(sqlite3.connect(self.file)) as connection:
            found: int = connection.execute("SELECT count(*) FROM orders").fetchone()[0]
            return found


def resumable(store: Any, charge: Callable[[str], int]) -> Callable[[], int]:
    """An operation of two phases around a call."""
    once = Once(store, scope="shop")

    @once.operation(key=lambda: "order-1", name="buy", effects="resumable")
    def buy() -> int:
        at = current()
        at.phase("order", lambda connection: connection.execute("INSERT INTO orders VALUES ('o')") and None)
        receipt: int = at.call("charge", charge, remembers=timedelta(hours=24))
        at.phase("paid", lambda connection: connection.execute("UPDATE orders SET id = 'paid'") and None)
        return receipt

    return buy


def places() -> Callable[[Path], Path]:
    """A file of its own for each run."""
    count = iter(range(1000))
    return lambda folder: folder / f"{next(count)}.db"


def test_an_operation_is_cut_at_every_place(tmp_path: Path) -> None:
    """R42, R24, I10: dead before and behind each step, among them between the charge and its record, and gone on with:
    one order and one charge."""
    file = places()
    stories = []

    def trial(life: Life) -> None:
        market = Market(file(tmp_path))
        store = SqliteStore(market.file, clock=market.clock)
        store.apply_schema()
        with life:
            resumable(life.store(store), life.function(market.charge))()
        market.clock.advance(LEASE)
        assert resumable(store, market.charge)() == 1
        assert (market.orders(), len(market.charges)) == (1, 1)
        stories.append((str(life), len(market.sent), life.steps))
        store.close()

    runs = cut_everywhere(trial)
    assert len(stories) == runs and runs == 2 * len(stories[-1][2]) + 1
    behind = [
        sent for said, sent, _ in stories if said.startswith("the process died behind step") and "charge (" in said
    ]
    assert behind == [2], "cut behind the charge it is sent once more, under its key"
    assert {"claim", "begin", "advance", "charge", "complete"} <= set(stories[-1][2])
    assert stories[-1][0] == f"the process came to its end, after {len(stories[-1][2])} steps"


def test_a_transaction_is_cut_at_every_place(tmp_path: Path) -> None:
    """R42, I2: a transactional function that dies anywhere leaves nothing or all of it; its retry makes one of both."""
    file = places()
    left = []

    def trial(life: Life) -> None:
        market = Market(file(tmp_path))
        store = SqliteStore(market.file, clock=market.clock)
        store.apply_schema()

        def buying(store: Any) -> Callable[[], None]:
            once = Once(store, scope="shop")

            @once.operation(key=lambda: "order-1", name="buy", effects="transactional")
            def buy() -> None:
                current().connection.execute("INSERT INTO orders VALUES ('o')")

            return buy

        with life:
            buying(life.store(store))()
        left.append(market.orders())
        buying(store)()
        assert market.orders() == 1
        store.close()

    assert cut_everywhere(trial) == len(left)
    assert left == sorted(left) and set(left) == {0, 1}


def test_within_an_event_loop(tmp_path: Path) -> None:
    """R42, R24, I10: the same for asyncio."""
    file = places()

    async def trial(life: Life) -> None:
        market = Market(file(tmp_path))
        store = AsyncSqliteStore(market.file, clock=market.clock)
        await store.apply_schema()

        def buying(store: Any, charge: Any) -> Callable[[], Any]:
            once = AsyncOnce(store, scope="shop")

            async def order(connection: Any) -> None:
                await connection.execute("INSERT INTO orders VALUES ('o')")

            @once.operation(key=lambda: "order-1", name="buy", effects="resumable")
            async def buy() -> int:
                at = current()
                await at.phase("order", order)
                receipt: int = await at.call("charge", charge, remembers=timedelta(hours=24))
                return receipt

            return buy

        async def charge(key: str) -> int:
            return market.charge(key)

        async with life:
            await buying(life.store(store), life.function(charge))()
        market.clock.advance(LEASE)
        assert await buying(store, charge)() == 1
        assert (market.orders(), len(market.charges)) == (1, 1)
        await store.aclose()

    assert asyncio.run(acut_everywhere(trial)) > 10


def test_where_it_died_is_told(tmp_path: Path) -> None:
    """R42: an operation that charges before it writes that down is found out, and the error says at which place."""
    done: list[str] = []

    def trial(life: Life) -> None:
        charges: list[str] = []
        orders: list[str] = []

        def buy(charge: Callable[[str], object], order: Callable[[str], object]) -> None:
            if not orders:
                charge("o")
                order("o")

        with life:
            buy(life.function(charges.append), life.function(orders.append))
        buy(charges.append, orders.append)
        done.append(str(life))
        assert len(charges) == 1, "charged twice"

    with pytest.raises(AssertionError, match="charged twice") as failed:
        cut_everywhere(trial)
    assert failed.value.__notes__ == ["the process died behind step 1, append"]
    assert done == ["the process died before step 1, append", "the process died behind step 1, append"]


def test_the_steps_before_are_told() -> None:
    """R42: the place is told with the steps that led there."""
    life = Life(3)
    with life:
        for name in ("reserve", "charge", "confirm"):

            def step() -> None:
                """It does nothing."""

            step.__name__ = name
            life.function(step)()
    assert life.died and life.steps == ("reserve", "charge")
    assert str(life) == "the process died behind step 2, charge (after reserve)"


def test_a_dead_process_does_nothing_more() -> None:
    """R42: what a dead process tries while it is being left, in a finally say, is not done."""
    done: list[str] = []
    life = Life(1)
    with life:
        step = life.function(done.append)
        try:
            step("first")
        finally:
            step("tidied up")
    assert done == ["first"]


def test_an_error_of_a_living_process_is_an_error() -> None:
    """R42: only death is quiet."""
    with pytest.raises(ZeroDivisionError), Life(5) as life:
        life.function(lambda: 1 // 0)()


def test_misuse_is_refused() -> None:
    """R42: a trial in which nothing can be cut, and one that never comes to its end, are mistakes that are told."""

    async def nothing(life: Life) -> None:
        async with life:
            pass

    with pytest.raises(ConfigurationError, match="nothing can be cut"):
        asyncio.run(acut_everywhere(nothing))

    def endless(life: Life) -> None:
        with life:
            while True:
                life.function(lambda: None)()

    with pytest.raises(ConfigurationError, match="after 7 runs the process has not come to its end"):
        cut_everywhere(endless, most=7)
