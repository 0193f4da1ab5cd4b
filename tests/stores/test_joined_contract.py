"""Stores that join sessions keep the contract: each check, on each kind, on PostgreSQL and on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.postgresql import PostgresqlServer
from tests.stores import django_kinds, joined_kinds
from twicesafe.testing import CHECKS, Outcome, check_store
from twicesafe.testing.check import RESUMES, STATEMENTS, TRANSACTIONS, Check

RIVALS = 8
KEYS = 10
"""Beside the drivers' own stores, whose rivals are more."""

SESSIONS = ("SQLAlchemy, psycopg", "SQLAlchemy, asyncpg")
ON_FILES = ("SQLAlchemy, pysqlite", "SQLAlchemy, aiosqlite")
OTHERS = sorted((joined_kinds.ON_POSTGRESQL.keys() | joined_kinds.ON_SQLITE.keys()) - {*SESSIONS, *ON_FILES})
"""Which differ from those in what a transaction is begun with, and in nothing else."""
IN_TRANSACTIONS = [check for check in CHECKS if TRANSACTIONS in check.needs]
WITHOUT = {STATEMENTS, RESUMES}
"""On a file, as with SqliteStore: nothing comes between the statements of a claim."""

EACH = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


@pytest.mark.parametrize("kind", SESSIONS)
@EACH
def test_sessions_on_postgresql_keep_their_promises(
    postgresql_server: PostgresqlServer, kind: str, check: Check
) -> None:
    """R23, B1, B4, B5, B6, C1, C2, C4, C6, C8, D1, D4, H2: the contract holds where a Session is the transaction."""
    make = joined_kinds.emptied_place(postgresql_server, kind).subject
    [result] = check_store(make, only=[check.name], rivals=RIVALS, keys=KEYS)
    assert result.outcome is (Outcome.NOT_APPLICABLE if RESUMES in check.needs else Outcome.PASSED)


@pytest.mark.parametrize("kind", ON_FILES)
@EACH
def test_sessions_on_sqlite_keep_their_promises(tmp_path: Path, kind: str, check: Check) -> None:
    """R23, B1, B4, B5, B6, C1, C2, C4, C8, D1, D4, H2: the contract holds where a Session is the transaction."""
    [result] = check_store(
        lambda clock: joined_kinds.on_file(tmp_path / "shop.db", kind, clock),
        only=[check.name], rivals=RIVALS, keys=KEYS,
    )  # fmt: skip
    applies = not WITHOUT.intersection(check.needs)
    assert result.outcome is (Outcome.PASSED if applies else Outcome.NOT_APPLICABLE)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("check", IN_TRANSACTIONS, ids=lambda check: check.name)
def test_other_transactions_of_sqlalchemy_keep_their_promises(
    postgresql_server: PostgresqlServer, tmp_path: Path, kind: str, check: Check
) -> None:
    """R23, C2, C8, H2: whatever begins them, transactions do what they promise."""
    if kind in joined_kinds.ON_POSTGRESQL:
        make = joined_kinds.emptied_place(postgresql_server, kind).subject
    else:
        make = lambda clock: joined_kinds.on_file(tmp_path / "shop.db", kind, clock)  # noqa: E731
    [result] = check_store(make, only=[check.name], rivals=RIVALS, keys=KEYS)
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize("kind", django_kinds.KINDS)
@EACH
def test_django_on_postgresql_keeps_its_promises(postgresql_server: PostgresqlServer, kind: str, check: Check) -> None:
    """R23, B1, B4, B5, B6, C1, C2, C4, C6, C8, D1, D4, H2: the contract holds where atomic() is the transaction."""
    make = django_kinds.emptied_place(postgresql_server, kind).subject
    [result] = check_store(make, only=[check.name], rivals=RIVALS, keys=KEYS)
    assert result.outcome is (Outcome.NOT_APPLICABLE if RESUMES in check.needs else Outcome.PASSED)


@pytest.mark.parametrize("kind", django_kinds.KINDS)
@EACH
def test_django_on_sqlite_keeps_its_promises(tmp_path: Path, kind: str, check: Check) -> None:
    """R23, B1, B4, B5, B6, C1, C2, C4, C8, D1, D4, H2: the contract holds where atomic() is the transaction."""
    [result] = check_store(
        lambda clock: django_kinds.on_file(tmp_path / "shop.db", kind, clock),
        only=[check.name], rivals=RIVALS, keys=KEYS,
    )  # fmt: skip
    applies = not WITHOUT.intersection(check.needs)
    assert result.outcome is (Outcome.PASSED if applies else Outcome.NOT_APPLICABLE)
