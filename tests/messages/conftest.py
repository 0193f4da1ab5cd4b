"""Databases with the tables, one of each dialect for a file of tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import cache

import pytest

from tests.messages.connections import Database
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer
from twicesafe.stores.contract import Store
from twicesafe.stores.psycopg import PsycopgStore
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.sqlite import SqliteStore

Databases = Callable[[str], Database]


@pytest.fixture(scope="module")
def databases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    """The file's database of a dialect."""

    @cache
    def of(dialect: str) -> Database:
        store: Store
        number = "id INTEGER PRIMARY KEY AUTOINCREMENT"
        if dialect == "sqlite":
            found = Database(dialect, str(tmp_path_factory.mktemp("messages") / "shop.db"))
            store = SqliteStore(found.where)
        elif dialect == "postgresql":
            postgresql: PostgresqlServer = request.getfixturevalue("postgresql_server")
            found = Database(dialect, postgresql.create_database())
            store, number = PsycopgStore(found.where), "id serial PRIMARY KEY"
        else:
            mariadb: MariadbServer = request.getfixturevalue("mariadb_server")
            found = Database(dialect, mariadb.create_database(), mariadb.port)
            store, number = PymysqlStore(mariadb.dsn(found.where)), "id SERIAL PRIMARY KEY"
        with closing(store):
            store.apply_schema()
        found.ask(f"CREATE TABLE effects ({number}, name VARCHAR(255))")
        return found

    return of
