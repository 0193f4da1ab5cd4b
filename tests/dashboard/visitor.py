"""Somebody at the dashboard: by a browser, or by requests as a browser would send them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page

from tests.dashboard.place import PASSWORD, PATIENCE, Place, ask

LIVE = ".live.on"


@contextmanager
def visit(browser: Browser, shop: Place, **context: Any) -> Iterator[Page]:
    """A browser's page, signed in, on the overview. Nothing may be complained of while it is there."""
    opened = browser.new_context(**context)
    opened.set_default_timeout(PATIENCE * 1000)
    page = opened.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        page.goto(shop.url)
        page.get_by_label("Name").fill("ann")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/dashboard/")
        yield page
        assert complaints == []
    finally:
        opened.close()


class Caller:
    """Somebody who asks by hand, with a browser's cookie."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookie = ""
        self.last = b""

    def get(self, path: str) -> tuple[int, dict[str, str], str]:
        """A page. What it sets as a cookie is kept."""
        return self._kept(*ask(self.url + path, None, {"cookie": self.cookie}))

    def post(self, path: str, proof: str | None = None, site: str = "same-origin", **fields: str) -> tuple[int, str]:
        """A form, with the proof of the page that was seen last. Status, and where it leads or what it says."""
        sent = {"proof": self.proof() if proof is None else proof} | fields
        lines = {"cookie": self.cookie, "sec-fetch-site": site}
        status, headers, body = self._kept(*ask(self.url + path, urlencode(sent).encode(), lines))
        return status, headers.get("location", body)

    def proof(self) -> str:
        """What the last page's forms carry."""
        found = re.search(rb'name="proof" value="([^"]+)"', self.last)
        return found[1].decode() if found else ""

    def seen(self) -> str:
        """What the last page's forms say of the claim they are about."""
        found = re.search(rb'name="seen" value="([^"]+)"', self.last)
        assert found is not None
        return found[1].decode()

    def sign_in(self, name: str = "ann", password: str = PASSWORD) -> int:
        """The answer's status."""
        self.get("/sign-in")
        return self.post("/sign-in", name=name, password=password)[0]

    def _kept(self, status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], str]:
        if "set-cookie" in headers:
            self.cookie = headers["set-cookie"].partition(";")[0]
        self.last = body
        return status, headers, body.decode()
