"""A private headless Chromium, the distribution's own, driven by Playwright.

    with chromium() as browser:
        page = browser.new_page()

It has no profile, keeps nothing, and reaches nobody but 127.0.0.1: every other name fails to resolve, so that a page
which needs the network fails here. While it is open its thread runs an event loop of Playwright's; `asyncio.run` has to
wait until it is closed, which is why the fixture lives for one test only.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
INSTALL = (
    f"None of {', '.join(PROGRAMS)} was found on PATH. Install Chromium: `apt-get install chromium` on Debian, "
    "`dnf install chromium` on Fedora."
)

QUIET = (
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def executable() -> str:
    """Where the browser is."""
    for program in PROGRAMS:
        found = shutil.which(program)
        if found is not None:
            return found
    raise RuntimeError(INSTALL)


@contextmanager
def chromium(**options: Any) -> Iterator[Browser]:
    """A browser that is gone with the `with`. `options` are Playwright's."""
    # The kernel's sandbox needs an account that is not root; what runs here is the project's own page.
    sandbox = () if os.geteuid() else ("--no-sandbox",)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(), headless=True, args=[*QUIET, *sandbox], **options
        )
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A browser for one test."""
    with chromium() as opened:
        yield opened
