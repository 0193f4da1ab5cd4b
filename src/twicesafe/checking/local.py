"""Throw-away places of this machine's: memory, and files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twicesafe.checking.places import ASYNCIO, BLOCKING, Opened, Place
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.urls import sqlite_path
from twicesafe.testing import MakeStore, ManualClock, StoreUnderTest


def in_memory() -> Place:
    def blocking(clock: ManualClock) -> StoreUnderTest:
        store = MemoryStore(clock=clock)
        return StoreUnderTest(store=store, elsewhere=lambda: AsyncMemoryStore(store))

    def asynchronous(clock: ManualClock) -> StoreUnderTest:
        store = MemoryStore(clock=clock)
        return StoreUnderTest(store=AsyncMemoryStore(store), elsewhere=lambda: store)

    return Place("this process's memory", {BLOCKING: blocking, ASYNCIO: asynchronous}, [])


@contextmanager
def beside_a_file(url: str, opened: Opened, remarks: list[str]) -> Iterator[Place]:
    """Files in a folder of their own, next to the file: on the same disk, which is what there is to check."""
    folder = Path(sqlite_path(url)).absolute().parent
    if find_spec("aiosqlite") is None:
        opened.pop(ASYNCIO, None)
        remarks.append("not every way was checked: asyncio needs aiosqlite: pip install 'twicesafe[aiosqlite]'")
    try:
        made = TemporaryDirectory(prefix="twicesafe-check-", dir=folder)
    except OSError as error:
        raise StoreUnavailableError(f"no folder could be made in {folder}: {error.strerror}") from error
    numbers = count()

    def make(way: str) -> MakeStore:
        def fresh(clock: ManualClock) -> StoreUnderTest:
            path = Path(made.name) / f"{next(numbers)}.db"
            # Counted from outside, where no other thread of this process is in the way.
            ledger = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
            ledger.execute("CREATE TABLE effects (name TEXT NOT NULL)")

            def open_one() -> Any:
                return opened[way](f"sqlite:///{path}", clock=clock)

            def close() -> None:
                ledger.close()
                for file in path.parent.glob(f"{path.name}*"):
                    file.unlink()

            return StoreUnderTest(
                store=open_one(),
                write_effect=lambda connection, name: connection.execute("INSERT INTO effects VALUES (?)", (name,)),
                count_effects=lambda name: ledger.execute(
                    "SELECT count(*) FROM effects WHERE name = ?", (name,)
                ).fetchone()[0],
                elsewhere=open_one,
                close=close,
            )

        return fresh

    with made:
        yield Place(f"files in {made.name}", {way: make(way) for way in opened}, remarks)
