"""The databases a storm can run on: a SQLite file, a private server, or one of somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from twicesafe.errors import ConfigurationError
from twicesafe.stores.connecting import DEFAULT_POOL_SIZE, without_password
from twicesafe.storm.ledger import Ledger
from twicesafe.storm.ledger_downstream import DownstreamLedger
from twicesafe.storm.ledger_sqlite import SqliteLedger
from twicesafe.storm.mariadb import PrivateMariaDB
from twicesafe.storm.place import HERE, Place
from twicesafe.storm.postgresql import PrivatePostgreSQL
from twicesafe.storm.redis import DURABLE, PrivateRedis


class Company(Protocol):
    """All processes that have the database open."""

    async def restart_all(self) -> None:
        """End all at once, and when the last is gone start them again."""


class Database(Protocol):
    """Where the records and the ledger are."""

    @property
    def url(self) -> str:
        """For the servers. It may hold a password."""

    @property
    def name(self) -> str:
        """For the report. It holds none."""

    @property
    def ledger(self) -> str:
        """Where the ledger is: beside the records, unless they are in no database."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of the report should know."""

    async def restart(self, company: Company, crash: bool, /) -> bool:  # noqa: FBT001 - two ways to go down
        """Restart it under its users, in good order or out of a crash; False where that cannot be done."""


class SqliteFile:
    """A file has no server: to restart it means that every process that has it open ends, and opens it anew."""

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self.url = self.ledger = f"sqlite:///{file}"
        self.remarks = ()

    async def restart(self, company: Company, crash: bool, /) -> bool:  # noqa: FBT001
        if crash:
            # What would crash are its users, and they do: that is what SIGKILL stands for.
            return False
        await company.restart_all()
        return True


class OwnPostgreSQL:
    """A private server, stopped in good order (`pg_ctl stop -m fast`) or crashed (`-m immediate`) and started again."""

    def __init__(self, server: PrivatePostgreSQL) -> None:
        self.server = server
        self.name = "postgresql"
        self.url = self.ledger = server.url
        self.remarks = ()

    async def restart(self, company: Company, crash: bool, /) -> bool:  # noqa: ARG002, FBT001 - the company has to cope
        await asyncio.to_thread(self.server.restart, "immediate" if crash else "fast")
        return True


class OwnMariaDB:
    """A private server, stopped in good order or killed, and started again."""

    def __init__(self, server: PrivateMariaDB) -> None:
        self.server = server
        self.name = "mysql"
        self.url = self.ledger = server.url
        self.remarks = ("the server is a MariaDB",)

    async def restart(self, company: Company, crash: bool, /) -> bool:  # noqa: ARG002, FBT001 - the company has to cope
        await asyncio.to_thread(self.server.restart, "crash" if crash else "fast")
        return True


class GivenServer:
    """Somebody else's PostgreSQL, MySQL or MariaDB, which is left alone."""

    def __init__(self, url: str) -> None:
        self.name = without_password(url)
        self.url = self.ledger = url
        self.remarks = (f"the database was not restarted: {self.name} is not the storm's to restart",)

    async def restart(self, company: Company, crash: bool, /) -> bool:  # noqa: ARG002, FBT001
        return False


class OwnRedis:
    """A private server that writes to its disk before it answers, stopped in good order or killed. Effects cannot
    share its transactions: the ledger is a system of its own, in `folder`."""

    def __init__(self, server: PrivateRedis, folder: Path) -> None:
        self.server = server
        self.name = "redis"
        self.url = server.url
        self.ledger = called_in(folder)
        self.remarks = (KEYED,)

    async def restart(self, company: Company, crash: bool, /) -> bool:  # noqa: ARG002, FBT001 - the company has to cope
        await asyncio.to_thread(partial(self.server.restart, crash=crash))
        return True


class GivenRedis:
    """Somebody else's server, which is left alone."""

    def __init__(self, url: str, folder: Path) -> None:
        self.name = without_password(url)
        self.url = url
        self.ledger = called_in(folder)
        self.remarks = (KEYED, f"the server was not restarted: {self.name} is not the storm's to restart")

    async def restart(self, company: Company, crash: bool, /) -> bool:  # noqa: ARG002, FBT001
        return False


KEYED: Final = (
    "Redis shares no transaction with effects: payments are declared keyed, and the ledger, like a payment provider, "
    "makes one payment for each derived key"
)


@asynccontextmanager
async def database(store: str, folder: Path, servers: int, place: Place = HERE) -> AsyncIterator[Database]:
    """The database that `store` names, for so many servers. What is temporary of it ends with the block.

    `place` is where one lives that the storm starts itself.
    """
    scheme = store.partition(":")[0]
    if store == "sqlite":
        yield SqliteFile(store, (place.folder or folder) / "storm.sqlite3")
    elif scheme == "sqlite":
        yield SqliteFile(store, file_of(store))
    elif store == "postgresql":
        server = PrivatePostgreSQL(
            {"max_connections": str(40 + 2 * DEFAULT_POOL_SIZE * servers), **place.settings}, place=place
        )
        try:
            await asyncio.to_thread(server.start)
            yield OwnPostgreSQL(server)
        finally:
            await asyncio.to_thread(server.close)
    elif store == "mysql":
        mariadb = PrivateMariaDB(
            {"max-connections": str(40 + 2 * DEFAULT_POOL_SIZE * servers), **place.settings}, place=place
        )
        try:
            await asyncio.to_thread(mariadb.start)
            yield OwnMariaDB(mariadb)
        finally:
            await asyncio.to_thread(mariadb.close)
    elif scheme in ("postgresql", "postgres", "mysql"):
        yield GivenServer(store)
    elif store == "redis":
        redis = PrivateRedis({**DURABLE, **place.settings}, place=place)
        try:
            await asyncio.to_thread(redis.start)
            yield OwnRedis(redis, folder)
        finally:
            await asyncio.to_thread(redis.close)
    elif scheme.startswith("redis"):
        yield GivenRedis(store, folder)
    else:
        raise ConfigurationError(
            "a storm runs on `sqlite`, `postgresql`, `mysql`, `redis`, or a URL of one of them, not on "
            f"{without_password(store)!r}"
        )


def called_in(folder: Path) -> str:
    """A ledger that is called, and keeps what it knows in `folder`."""
    return f"downstream:///{folder / 'ledger.sqlite3'}"


def ledger_in(url: str) -> Ledger:
    """The ledger at `url`."""
    if url.startswith("downstream:///"):
        return DownstreamLedger(Path(url.removeprefix("downstream:///")))
    if url.startswith("sqlite:"):
        return SqliteLedger(file_of(url))
    if url.startswith("mysql:"):
        from twicesafe.storm.ledger_mysql import MysqlLedger

        return MysqlLedger(url)
    from twicesafe.storm.ledger_postgresql import PostgresqlLedger  # a storm on SQLite needs no driver of PostgreSQL's

    return PostgresqlLedger(url)


def file_of(url: str) -> Path:
    """The file that a sqlite:/// URL names."""
    name = url.removeprefix("sqlite:///")
    if name in ("", url):
        raise ConfigurationError("a storm on a SQLite file of yours is asked for by sqlite:///path")
    return Path(name)
