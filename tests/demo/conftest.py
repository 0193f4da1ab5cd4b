"""A running demo, and a browser to look at it with, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.demo.service import Demo, demo
from tests.servers.chromium import chromium


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One demo; every page in it is another shopper's."""
    with demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser; every visit is another context of it. No test here runs an event loop beside Playwright's."""
    with chromium() as opened:
        yield opened
