"""Fixtures of the tests of plain functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functions.shop import Shop
from tests.functions.ways import WAYS, Ledger, Way


@pytest.fixture(params=WAYS, ids=["blocking", "asyncio"])
def way(request: pytest.FixtureRequest) -> Way:
    """Blocking functions, then asynchronous ones."""
    made: Way = request.param()
    return made


@pytest.fixture
def ledger() -> Ledger:
    """What functions do."""
    return Ledger()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A database and a provider, for operations of several steps."""
    made = Shop(tmp_path / "shop.db")
    yield made
    made.store.close()
