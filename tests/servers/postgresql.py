"""A private PostgreSQL server for tests: made, crashed, restarted and thrown away at will.

with PostgresqlServer() as server:
    dsn = server.create_database()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

import pytest

from twicesafe.storm.postgresql import PrivatePostgreSQL


class PostgresqlServer(PrivatePostgreSQL):
    """A private server that trusts whoever can reach it. `durable` leaves fsync on."""

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        durability = {} if durable else {"fsync": "off", "full_page_writes": "off"}
        super().__init__(
            {"max_connections": "200", "shared_buffers": "64MB", **durability, **(settings or {})}, trusting=True
        )
        self._databases = count(1)

    def create_database(self) -> str:
        """A new empty database; its DSN."""
        name = f"db{next(self._databases)}"
        self.run("createdb", "--host=127.0.0.1", f"--port={self.port}", "--username=twicesafe", name)
        return self.dsn(name)


class Standby(PostgresqlServer):
    """A copy of `primary` that follows it, and takes over when it is promoted."""

    NAME = "standby"
    """What the primary knows it by."""

    def __init__(self, primary: PostgresqlServer, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings=settings)
        self._primary = primary

    def initialize(self) -> None:
        """Copy the primary while it runs."""
        where = f"{self._primary.dsn()}?application_name={self.NAME}"
        self.run("pg_basebackup", "-D", self.data, "-d", where, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def promote(self) -> None:
        """Make it a primary; returns when it takes writes."""
        self.run("pg_ctl", "promote", "-D", self.data, "-s", "-w")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """One server for the whole session (one for each xdist worker): create a database of your own in it."""
    with PostgresqlServer() as server:
        yield server
