"""Fixtures of the store tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.dynamodb import DynamodbServer
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer
from tests.stores import dynamodb_place as dynamodb
from tests.stores import mysql_kinds
from tests.stores.postgresql_kinds import Place, new_place
from tests.stores.sqlite_file import Blocked, File


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    """A fresh SQLite file."""
    made = File(tmp_path / "records.db")
    yield made
    made.close()


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Blocked:
    """To wait until writers wait."""
    return Blocked(monkeypatch)


@pytest.fixture
def place(postgresql_server: PostgresqlServer, kind: str) -> Iterator[Place]:
    """A schema of its own in the tests' PostgreSQL, for stores of the kind under test."""
    made = new_place(postgresql_server, kind)
    with made.admin:
        yield made


@pytest.fixture
def mysql_place(mariadb_server: MariadbServer, kind: str) -> Iterator[mysql_kinds.Place]:
    """A database of its own in the tests' MariaDB, for stores of the kind under test."""
    made = mysql_kinds.new_place(mariadb_server, kind)
    yield made
    if made.admin.open:
        made.admin.close()


@pytest.fixture
def dynamodb_place(dynamodb_server: DynamodbServer, kind: str) -> dynamodb.Place:
    """Tables of their own in the tests' DynamoDB, for stores of the kind under test."""
    return dynamodb.new_place(dynamodb_server, kind)
