"""Operations of several steps over a sealed store: what lies there of their steps, and what cannot be opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from twicesafe.errors import DefinitionChangedError, OutcomeUnknownError, StoreUnavailableError
from twicesafe.once import Once, current
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.sealed import SealedStore
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.testing import ManualClock

FIRST, SECOND = Keyring.new_key(), Keyring.new_key()
RING = Keyring({"first": FIRST}, current="first")
OTHERS = Keyring({"second": SECOND}, current="second")
K = "order-77"
SECRET = "4242 4242 4242 4242"


class Shelf:
    """Operations of three phases in one SQLite file, by processes with several keyrings."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.inner = SqliteStore(path, clock=self.clock)
        self.inner.apply_schema()
        self.taken: list[str] = []
        self.breaks = ""
        self.unreadable: list[Any] = []

    def process(self, keys: Keyring | None = RING) -> tuple[Once, Any]:
        """A process with these keys; its operation breaks before the phase named by `breaks`."""
        store = SealedStore(self.inner, keys=keys, unreadable=lambda record, why: self.unreadable.append(why))
        once = Once(store, scope="shop", observer=lambda event: None)

        def step(connection: sqlite3.Connection, name: str) -> str:
            self.taken.append(name)
            return f"{SECRET} {name}"

        @once.operation(key=lambda card: K, effects="resumable", name="pay")
        def pay(card: str) -> str:
            at: Any = current()
            given = ""
            for name in ("reserve", "charge", "ship"):
                if name == self.breaks:
                    raise RuntimeError
                given = at.phase(name, step, name)
            return given

        return once, pay

    def broken_off(self, before: str = "ship", keys: Keyring | None = RING) -> None:
        """An attempt that broke off, and time enough for the next."""
        self.breaks = before
        with pytest.raises(RuntimeError):
            self.process(keys)[1](SECRET)
        self.breaks = ""
        self.clock.advance(timedelta(minutes=5))

    def data(self, change: Any = None) -> bytes:
        """What lies there of the steps, changed behind everybody's back where `change` is given."""
        with sqlite3.connect(self.path) as plain:
            (found,) = plain.execute("SELECT recovery_data FROM twicesafe_records").fetchone()
            if change is not None:
                plain.execute("UPDATE twicesafe_records SET recovery_data = ?", (change(found),))
        plain.close()
        return bytes(found)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    """A fresh one."""
    made = Shelf(tmp_path / "shop.db")
    yield made
    made.inner.close()


@pytest.mark.parametrize("worker", [False, True], ids=["retry", "worker"])
def test_it_goes_on_from_steps_that_nobody_else_can_read(shelf: Shelf, *, worker: bool) -> None:
    """R22, R24, I10: each step lies there as a line of its own, sealed; the next attempt opens them and goes on."""
    shelf.broken_off()
    lying = shelf.data()
    assert lying.count(b"\n~") == 2
    assert SECRET.encode() not in lying and b"reserve" not in lying and lying.isascii()
    once, pay = shelf.process()
    if worker:
        assert once.resume().done == 1
    assert pay(SECRET) == f"{SECRET} ship"
    assert shelf.taken == ["reserve", "charge", "ship"]
    assert shelf.unreadable == []


def test_steps_from_before_the_store_was_sealed_are_read_as_they_are(shelf: Shelf) -> None:
    """R22, R24: an operation that is under way when keys are introduced goes on; what it adds is sealed."""
    shelf.broken_off("charge", keys=None)
    shelf.broken_off("ship")
    assert shelf.data().count(b"\n~") == 1
    assert shelf.process()[1](SECRET) == f"{SECRET} ship"
    assert shelf.taken == ["reserve", "charge", "ship"]


def swapped(data: bytes) -> bytes:
    first, second = data.split(b"\n~")[1:]
    return b"\n~" + second + b"\n~" + first


@pytest.mark.parametrize(
    "change",
    [
        swapped,
        lambda data: data[: data.rindex(b"\n~")],
        lambda data: data[data.rindex(b"\n~") :],
        lambda data: data + data[data.rindex(b"\n~") :],
        lambda data: data + b'\n["ship","phase","done","1",0]',
        lambda data: data[:-6] + b"AAAAAA",
        lambda data: b"\n~" + data,
        lambda data: None,
    ],
    ids=["swapped", "last gone", "first gone", "twice", "in the clear", "changed", "empty", "all gone"],
)
def test_steps_that_were_changed_are_not_gone_on_with(shelf: Shelf, change: Any) -> None:
    """R22, I6, I10: no step is taken again, none is left out; it is held for a human."""
    shelf.broken_off()
    shelf.data(change)
    once, pay = shelf.process()
    with pytest.raises((DefinitionChangedError, OutcomeUnknownError)):
        pay(SECRET)
    with pytest.raises(OutcomeUnknownError):
        pay(SECRET)
    assert shelf.taken == ["reserve", "charge"]
    assert once.resume()[:3] == (0, 0, 0)


def test_where_the_key_is_missing_it_waits_for_a_process_that_has_it(shelf: Shelf) -> None:
    """R22, R24: workers without the key leave it alone, a caller is asked to ask again, and where it is it goes on."""
    shelf.broken_off()
    once, pay = shelf.process(OTHERS)
    assert once.resume()[:3] == (0, 0, 0)
    with pytest.raises(StoreUnavailableError):
        pay(SECRET)
    shelf.clock.advance(timedelta(minutes=5))
    both = Keyring({"first": FIRST, "second": SECOND}, current="second")
    assert shelf.process(both)[0].resume().done == 1
    assert shelf.taken == ["reserve", "charge", "ship"]
