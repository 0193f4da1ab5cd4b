"""Fixtures of the store tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
