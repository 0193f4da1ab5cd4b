"""A browser and a shop for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.js.shop import Shop, shop
from tests.servers.chromium import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser, with the back/forward cache that its visitors have; no test here runs an event loop beside it."""
    with chromium(ignore_default_args=["--disable-back-forward-cache"]) as opened:
        yield opened


@pytest.fixture(scope="module")
def open_shop() -> Iterator[Shop]:
    """One shop."""
    with shop() as opened:
        yield opened


@pytest.fixture
def store(open_shop: Shop) -> Shop:
    """The shop, before anything was ordered."""
    assert open_shop.acts == []
    for list_ in (open_shop.orders, open_shop.seen, open_shop.asked):
        list_.clear()
    return open_shop


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """One tab: each further one would be another process."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def page(tab: Page, store: Shop) -> Iterator[Page]:
    """A page of the shop whose visitor has not been here before."""
    tab.goto(store.origin)
    tab.evaluate("sessionStorage.clear(), localStorage.clear()")
    yield tab
    tab.unroute_all()
