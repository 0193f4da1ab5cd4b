"""A shop with a dashboard, a browser to look at it with, and somebody who may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.dashboard.place import Place, place
from tests.servers.chromium import chromium
from twicesafe.dashboard import live


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """What changes is told in a moment, not in a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "FRESH", 0.1)
        yield


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Place]:
    """A shop for one test."""
    with place(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser; every visit is another context of it. No test here runs an event loop beside Playwright's."""
    with chromium() as opened:
        yield opened
