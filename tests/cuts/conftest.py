"""Fixtures of the cuts: processes that are really killed, and where they are."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cuts.market import FIRMS, Firm, Market
from tests.stores import mysql_kinds, postgresql_kinds
from twicesafe.stores.urls import sqlite_path
from twicesafe.storm.tied import tied
from twicesafe.testing import ManualClock

ROOT = Path(__file__).parents[2]


class Doomed:
    """The program that makes processes which die, started when it is needed first."""

    def __init__(self) -> None:
        self._program: subprocess.Popen[str] | None = None

    def ask(self, *what: Any) -> Any:
        """Its answer to one line."""
        if self._program is None:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
            command = tied([sys.executable, "-m", "tests.cuts.doomed"])
            self._program = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(what) + "\n")
        self._program.stdin.flush()
        return json.loads(self._program.stdout.readline())

    def close(self) -> None:
        """It ends when it is told nothing more."""
        if self._program is not None:
            self._program.communicate(timeout=30)
            assert self._program.returncode == 0


@pytest.fixture(scope="session")
def doomed() -> Iterator[Doomed]:
    """One for all tests of a session."""
    with closing(Doomed()) as program:
        yield program


@dataclass
class World:
    """A market as its tests see it: from outside, and with the time in their hands."""

    market: Market
    clock: ManualClock
    admin: Any
    """A connection to the database."""
    doomed: Doomed

    def but(self, **changes: Any) -> World:
        """The same with other contracts."""
        return replace(self, market=replace(self.market, **changes))

    def killed(self, way: str, job: str, orders: dict[str, int]) -> list[int]:
        """One process for each order, killed at that step; which signals they ended by."""
        found: list[int] = self.doomed.ask(asdict(self.market), way, job, orders)
        return found

    @contextmanager
    def firm(self, way: str) -> Iterator[Firm]:
        """A process that lives on."""
        with closing(FIRMS[way](self.market)) as firm:
            yield firm

    def later(self, by: timedelta) -> None:
        self.clock.advance(by)

    def rows(self, order: str) -> list[str]:
        """The steps of this order that are committed."""
        cursor = self.admin.cursor()
        cursor.execute(f"SELECT name FROM effects WHERE name LIKE '{order} %' ORDER BY id")
        return [name.removeprefix(f"{order} ") for (name,) in cursor.fetchall()]


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mysql"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, doomed: Doomed) -> Iterator[World]:
    """A market in a database of this kind, for all the tests of a module; each has orders of its own."""
    folder = tmp_path_factory.mktemp("market")
    clock = ManualClock()
    admin: Any
    match request.param:
        case "sqlite":
            market = Market(f"sqlite:///{folder / 'shop.db'}", str(folder))
            admin = sqlite_effects(market)
        case "postgresql":
            place = postgresql_kinds.new_place(request.getfixturevalue("postgresql_server"), "psycopg")
            market, admin = Market(place.dsn_with(), str(folder)), place.admin
            clock.watch(place.set_clock)
        case _:
            where = mysql_kinds.new_place(request.getfixturevalue("mariadb_server"), "pymysql")
            market, admin = Market(where.server.dsn(where.name), str(folder)), where.admin
            clock.watch(where.set_clock)
    clock.watch(market.tell_time)
    market.provider.make()
    with closing(market.open(asynchronous=False)) as store:
        store.apply_schema()
    with closing(admin):
        yield World(market, clock, admin, doomed)


def sqlite_effects(market: Market) -> Any:
    """A connection to the file, with a table of effects."""
    connection = sqlite3.connect(sqlite_path(market.url), isolation_level=None, timeout=30)
    connection.execute("CREATE TABLE effects (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    return connection
