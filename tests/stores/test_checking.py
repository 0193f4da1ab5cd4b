"""Throw-away places that could not be made to the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from twicesafe.checking.databases import Kind, in_a_database
from twicesafe.errors import StoreUnavailableError


class Attached:
    """Databases that are attached to one in memory, in which nobody may write."""

    def __init__(self, url: str) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_INSERT else sqlite3.SQLITE_OK
        )
        self.ran: list[str] = []
        self.left: list[str] = []

    def execute(self, statement: str) -> Sequence[Sequence[Any]]:
        self.ran.append(statement)
        return self._connection.execute(statement).fetchall()

    def close(self) -> None:
        self.left = [row[1] for row in self._connection.execute("PRAGMA database_list")]
        self._connection.close()


def test_a_place_that_could_not_be_furnished_is_removed() -> None:
    """R42: whatever right is missing, nothing is left behind, and it is said what could not be made, and where."""
    admins: list[Attached] = []

    def connect(url: str) -> Attached:
        admins.append(Attached(url))
        return admins[-1]

    kind = Kind("database", "ATTACH ':memory:' AS {}", "DETACH {}", connect, lambda url, name: url)
    refused = pytest.raises(
        StoreUnavailableError, match=r"database twicesafe_check_\w+ could not be made in mysql://h/d"
    )
    with refused, in_a_database(kind, "mysql://h/d", {}, []):
        pytest.fail("it was taken for made")
    [admin] = admins
    assert any(statement.startswith("ATTACH") for statement in admin.ran)
    assert admin.left == ["main"]
