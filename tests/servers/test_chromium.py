"""The browser that other tests look through."""

from __future__ import annotations

import asyncio
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Browser
from playwright.sync_api import Error as PlaywrightError

from tests.servers.chromium import chromium


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<title>here</title>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_a_page_of_this_machine_is_seen(browser: Browser) -> None:
    """House: a page served on 127.0.0.1 is loaded and read in a real browser."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        Thread(target=partial(server.serve_forever, poll_interval=0.01)).start()
        try:
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            assert page.title() == "here"
        finally:
            server.shutdown()


def test_nobody_else_is_reached(browser: Browser) -> None:
    """House: a page that asks for anything outside this machine fails in the tests' browser."""
    page = browser.new_page()
    with pytest.raises(PlaywrightError, match="ERR_NAME_NOT_RESOLVED"):
        page.goto("http://example.com/")


def test_the_thread_is_free_again_once_the_browser_is_closed() -> None:
    """House: tests that run an event loop of their own may follow a test with a browser."""
    with chromium() as browser:
        assert browser.is_connected()
    assert asyncio.run(asyncio.sleep(0, "ran")) == "ran"
