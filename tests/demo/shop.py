"""The page as its visitor sees it, and what it must never do, watched all the while."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from tests.demo.service import Demo

SCENARIO = 90_000
"""Milliseconds that a scenario may take on a machine with other things to do."""

LANES = ("naive", "safe")


class Attempt(NamedTuple):
    """One row of a time line."""

    label: str
    result: str
    note: str


class Shop:
    """One visit. `complaints` and `strangers` fill up by themselves, and have to stay empty."""

    def __init__(self, browser: Browser, service: Demo, **options: object) -> None:
        self.service = service
        self.context: BrowserContext = browser.new_context(**options)  # type: ignore[arg-type]
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self.sent: list[tuple[str, str | None, str | None]] = []
        """Lane, key and body of every request that the page's scripts sent to an endpoint."""
        self.page: Page = self.context.new_page()
        self.page.on("console", self._complained)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._requested)
        self.page.goto(service.url)

    # --- doing ----------------------------------------------------------------------------------------------------

    def throw(self, *switches: str) -> Shop:
        """Turn these switches on."""
        for name in switches:
            self.page.locator(f".switches input[value={name}]").check()
        return self

    def pay(self) -> Shop:
        """Press the button, and see the scenario through to its end."""
        self.page.locator("#pay").click()
        return self.wait()

    def wait(self) -> Shop:
        """Until nothing runs any more."""
        self.page.locator("body:not(.running)").wait_for(timeout=SCENARIO)
        return self

    # --- seeing ---------------------------------------------------------------------------------------------------

    @property
    def shopper(self) -> str:
        return next(cookie["value"] for cookie in self.context.cookies() if cookie["name"] == "shopper")

    def effects(self) -> dict[str, list[int]]:
        """What stands in the database for this shopper, by lane."""
        return {lane: self.service.charges(lane, self.shopper) for lane in LANES}

    def story(self) -> str:
        return self.page.locator("#story").text_content() or ""

    def key(self) -> str:
        return self.page.locator("#key").text_content() or ""

    def attempts(self, lane: str) -> list[Attempt]:
        rows = self.page.locator(f"#{lane} .attempt").all()
        return [Attempt(*(row.locator(part).inner_text() for part in (".label", ".result", ".note"))) for row in rows]

    def results(self, lane: str) -> list[str]:
        return [attempt.result for attempt in self.attempts(lane)]

    def shown_ledger(self, lane: str) -> list[str]:
        return self.page.locator(f"#{lane} .ledger .amount").all_inner_texts()

    def count(self, lane: str) -> str:
        return self.page.locator(f"#{lane} .count").inner_text()

    # --- watching -------------------------------------------------------------------------------------------------

    def _complained(self, message: ConsoleMessage) -> None:
        # Chromium itself reports every answer of 400 and above and every broken connection. Those of the two
        # endpoints are what the demo is about.
        url = message.location.get("url", "")
        if message.type in ("error", "warning") and not url.endswith("/charges"):
            self.complaints.append(f"{message.text} ({url})")

    def _requested(self, request: Request) -> None:
        address = urlsplit(request.url)
        if f"{address.scheme}://{address.netloc}" != self.service.url:
            self.strangers.append(request.url)
        if address.path.endswith("/charges"):
            self.sent.append((address.path.split("/")[1], request.headers.get("idempotency-key"), request.post_data))

    def __enter__(self) -> Shop:
        return self

    def __exit__(self, *exc: object) -> None:
        self.context.close()
