"""A private MariaDB server for tests: made, crashed, restarted and thrown away at will.

with MariadbServer() as server:
    dsn = server.create_database()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from twicesafe.storm.mariadb import DATABASE, PrivateMariaDB

QUICK = {
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-flush-method": "nosync",
    "innodb-doublewrite": "OFF",
    "sync-frm": "OFF",
    "performance-schema": "OFF",
}
"""Nothing waits for the disk. A commit is the operating system's then, which outlives a server that crashes."""


class MariadbServer(PrivateMariaDB):
    """A private server that trusts whoever can reach it. `durable` leaves the fsync at each commit on."""

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        durability = {} if durable else QUICK
        super().__init__({"max-connections": "200", **durability, **(settings or {})}, trusting=True)
        self._databases = count(1)

    def connect(self, database: str = DATABASE, **options: Any) -> Any:
        """A connection of PyMySQL's to look from outside."""
        options = {"autocommit": True, "client_flag": CLIENT.MULTI_STATEMENTS, **options}
        return pymysql.connect(host="127.0.0.1", port=self.port, user="twicesafe", database=database, **options)

    def create_database(self) -> str:
        """A new empty database; its name."""
        name = f"db{next(self._databases)}"
        with self.connect() as admin, admin.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return name


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    """One server for the whole session (one for each xdist worker): create a database of your own in it."""
    with MariadbServer() as server:
        yield server
