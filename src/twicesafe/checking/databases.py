"""Throw-away places in SQL databases, with a table for the clock and one for effects beside the store's own."""

# ruff: noqa: S608 - every name is made here, and every value is a number or a plain word

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any, NamedTuple, Protocol, TypeVar

from twicesafe.checking.places import Opened, Place, interpose, new_name
from twicesafe.core.record import Instant
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.connecting import without_password
from twicesafe.testing import MakeStore, ManualClock, StoreUnderTest

T = TypeVar("T")

TIMEOUT = 10
"""Seconds until a server that does not answer is out of reach."""


class Admin(Protocol):
    """A connection beside the store's, for making, looking and removing. Each statement commits by itself."""

    def execute(self, statement: str) -> Sequence[Sequence[Any]]:
        """Its rows, which may be none."""

    def close(self) -> None:
        """Give it back."""


class Kind(NamedTuple):
    """What differs between the databases."""

    what: str
    create: str
    drop: str
    connect: Callable[[str], Admin]
    url_in: Callable[[str, str], str]
    """The address of a place in the database that an address leads to."""


@contextmanager
def in_a_database(kind: Kind, url: str, opened: Opened, remarks: list[str]) -> Iterator[Place]:
    """See throw_away.throw_away."""
    name, shown = new_name(), without_password(url)
    try:
        admin = kind.connect(url)
    except Exception as error:
        raise StoreUnavailableError(
            f"no connection to {shown}: {str(error).strip() or type(error).__name__}"
        ) from error
    try:
        where = f"{kind.what} {name} could not be made in {shown}"
        _make(admin, where, kind.create.format(name))
        try:
            _make(
                admin,
                where,
                f"CREATE TABLE {name}.clock (now bigint NOT NULL)",
                f"INSERT INTO {name}.clock (now) VALUES (0)",
                f"CREATE TABLE {name}.effects (name varchar(200) NOT NULL)",
            )
            place = kind.url_in(url, name)
            makers = {way: _maker(admin, name, place, open_one) for way, open_one in opened.items()}
            yield Place(f"{kind.what} {name} in {shown}", makers, remarks)
        finally:
            admin.execute(kind.drop.format(name))
    finally:
        admin.close()


def _make(admin: Admin, what: str, *statements: str) -> None:
    try:
        for statement in statements:
            admin.execute(statement)
    except Exception as error:
        raise StoreUnavailableError(f"{what}, which a check needs the right to: {error}") from error


def _maker(admin: Admin, name: str, url: str, open_one: Callable[..., Any]) -> MakeStore:
    options = {"now_sql": f"SELECT now FROM {name}.clock"}

    def set_clock(now: Instant) -> None:
        admin.execute(f"UPDATE {name}.clock SET now = {now:d}")

    def fresh(clock: ManualClock) -> StoreUnderTest:
        there = admin.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {_text(name)}")
        for table in {row[0] for row in there} & {"effects", "twicesafe_records"}:
            admin.execute(f"DELETE FROM {name}.{table}")
        clock.watch(set_clock)
        store = open_one(url, **options)
        return StoreUnderTest(
            store=store,
            write_effect=lambda connection, effect: _write(
                connection, f"INSERT INTO {name}.effects (name) VALUES ({_text(effect)})"
            ),
            count_effects=lambda effect: int(
                admin.execute(f"SELECT count(*) FROM {name}.effects WHERE name = {_text(effect)}")[0][0]
            ),
            elsewhere=lambda: open_one(url, **options),
            before_statement=lambda call: interpose(store, call),
        )

    return fresh


def _text(value: str) -> str:
    """As SQL writes it. The checks' names are plain words."""
    assert value.isascii() and "'" not in value and "\\" not in value and "%" not in value, value
    return f"'{value}'"


def _write(connection: Any, statement: str) -> Any:
    """By whatever driver; awaited where it has to be."""
    if hasattr(connection, "execute"):
        return connection.execute(statement)
    return connection.cursor().execute(statement)


class Loop:
    """An event loop of its own, for a driver that has no blocking calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result, blocking."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
