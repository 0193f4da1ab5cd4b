"""Tables that an older release made become this release's, with everything that is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claimed
from twicesafe.errors import SchemaError
from twicesafe.stores.psycopg import PsycopgStore
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.sql import schema
from twicesafe.stores.sql.statements import Dialect
from twicesafe.stores.sqlite import SqliteStore

OLDEST, NEWEST = 1, 3


@pytest.fixture(params=Dialect)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store on an empty database of each dialect."""
    made: Any
    if request.param is Dialect.SQLITE:
        made = SqliteStore(tmp_path / "records.db")
    elif request.param is Dialect.POSTGRESQL:
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        made = PsycopgStore(server.create_database())
    else:
        mysql: MariadbServer = request.getfixturevalue("mariadb_server")
        made = PymysqlStore(mysql.dsn(mysql.create_database()))
    yield made
    made.close()


def known_up_to(newest: int) -> Callable[[Dialect], tuple[schema.Version, ...]]:
    """What an older release knew."""
    whole = schema.versions
    return lambda dialect: whole(dialect)[:newest]


@pytest.mark.parametrize("before", range(OLDEST, NEWEST))
def test_tables_of_an_older_release_are_upgraded(store: Any, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """R20: tables of any older version are refused with the remedy, and upgraded with every record in them."""
    with monkeypatch.context() as then:
        then.setattr(schema, "versions", known_up_to(before))
        store.apply_schema()
        store.check_schema()
        won = store.claim(wish())
        assert isinstance(won, Claimed)
        store.complete(won.ownership, ANSWER, KEY, BODY)
    kept = store.read(won.ownership.digest).record
    with pytest.raises(SchemaError, match=f"of version {before}, this release needs {NEWEST}: run `twicesafe schema"):
        store.check_schema()
    store.apply_schema()
    store.check_schema()
    assert store.read(won.ownership.digest).record == kept
    with store.transaction() as transaction:
        transaction.begin()
        cursor = transaction.connection.cursor()
        cursor.execute("SELECT count(*), sum(epoch), min(shard), max(shard) FROM twicesafe_relay_shards")
        assert [int(number) for number in cursor.fetchone()] == [64, 0, 0, 63]
        cursor.close()
    store.apply_schema()
    store.check_schema()
