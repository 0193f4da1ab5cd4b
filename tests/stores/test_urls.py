"""Stores by their address."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import SOURCE
from twicesafe.errors import ConfigurationError
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.dynamodb import DynamodbStore
from twicesafe.stores.dynamodb_async import AsyncDynamodbStore
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.psycopg import PsycopgStore
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.stores.urls import open_async_store, open_store


@pytest.mark.parametrize(
    ("url", "blocking", "asynchronous"),
    [
        ("memory:", MemoryStore, AsyncMemoryStore),
        ("memory://", MemoryStore, AsyncMemoryStore),
        ("sqlite:///records.db", SqliteStore, AsyncSqliteStore),
        ("postgresql://user:secret@127.0.0.1:1/records", PsycopgStore, AsyncpgStore),
        ("postgres://user@127.0.0.1:1/records", PsycopgStore, AsyncpgStore),
        ("mysql://user:s%40fe@127.0.0.1:1/records?unix_socket=/run/my.sock", PymysqlStore, AsyncmyStore),
        ("dynamodb://eu-central-1/records?endpoint=http://127.0.0.1:1", DynamodbStore, AsyncDynamodbStore),
    ],
)
def test_an_address_leads_to_its_store(url: str, blocking: type, asynchronous: type) -> None:
    """R42: each kind of address gives the store of its kind, and opens nothing yet."""
    assert type(open_store(url)) is blocking
    assert type(open_async_store(url)) is asynchronous


def test_a_path_is_relative_or_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R42: three slashes begin a path from the working directory, four an absolute one; messages name it whole."""
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///a%20b.db", f"sqlite:///{tmp_path}/a%20b.db"):
        for store in (open_store(url), open_async_store(url)):
            assert isinstance(store, SqliteStore | AsyncSqliteStore)
            assert store._file.path == tmp_path / "a%20b.db"
            assert store._file.url == f"sqlite:///{tmp_path}/a%20b.db"


@pytest.mark.parametrize(
    "url",
    [
        "", "records.db", "sqlite", "sqlite:", "sqlite:records.db", "sqlite://host/records.db", "sqlite:///",
        "sqlite:///:memory:", "sqlite:///records.db?mode=ro", "memory:other", "oracle://user:secret@host/records",
        "mysql://user:secret@host", "mysql://user:secret@host/records?charset=gbk", "mysql://user:secret@host:x/records",
        "mysql://host/records", "mysql://user:secret?@host/records",
        "POSTGRESQL://user:secret@host/records", "dynamodb://eu-central-1", "dynamodb:///records",
        "dynamodb://id:secret@eu-central-1/records", "dynamodb://eu-central-1/records?endpint=http://127.0.0.1:1",
        "dynamodb://eu-central-1/records/more", "dynamodb://[secret/records", "dynamodb://id:secret\u2100@eu/records",
        "redis://user:secret\u2100@host", "redis://user:1?secret=1@host", "mysql://user:secret\u2100@host/records",
    ],
)  # fmt: skip
def test_any_other_address_is_refused_without_being_repeated(url: str) -> None:
    """R22, R42: what is no store's address is a ConfigurationError that tells what is, and repeats no password."""
    for opened in (open_store, open_async_store):
        with pytest.raises(ConfigurationError) as refused:
            opened(url)
        assert "secret" not in str(refused.value)


def test_a_missing_driver_is_named_with_its_extra() -> None:
    """R42: where a driver is not installed the message says what to install; other addresses work without it."""
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from twicesafe.errors import ConfigurationError
from twicesafe.stores.urls import open_async_store, open_store
for opened in (open_async_store, open_store):
    opened("memory:"), opened("sqlite:///records.db")
    for url in ("postgresql://host/records", "mysql://user@host/records", "dynamodb://region/records"):
        try:
            opened(url)
        except ConfigurationError as error:
            print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(SOURCE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    extras = ("asyncpg", "asyncmy", "dynamodb", "psycopg", "pymysql", "dynamodb")
    for line, extra in zip(ended.stdout.splitlines(), extras, strict=True):
        assert f"pip install 'twicesafe[{extra}]'" in line
