"""The pages as they are shown: to everybody, on every screen, by keyboard, and without a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.place import PASSWORD, PATIENCE, Place, place
from tests.dashboard.visitor import LIVE, visit
from twicesafe.outbox import Outbox

expect.set_options(timeout=PATIENCE * 1000)

AXE = Path(__file__).with_name("axe") / "node_modules" / "axe-core" / "axe.min.js"
"""Where the Makefile installs it."""

FAULTS = """async (only) => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"], ...only });
  return violations.filter(({ impact }) => ["moderate", "serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(" | ")}`);
}"""
CONTRAST = {"runOnly": ["color-contrast"]}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A shop in which something has happened: what is done, what is unknown, replays, and messages that wait."""
    with place(tmp_path_factory.mktemp("busy")) as opened:
        for number in range(3):
            opened.charge(f"an-order-of-today-{number}")
        opened.charge("an-order-of-today-0")
        opened.charge("an-order-of-today-0", b"{}")
        opened.unknown()
        with opened.store.transaction() as transaction:
            transaction.begin()
            outbox = Outbox(source="shop")
            for number in range(3):
                outbox.add(transaction.connection, "order.placed", ("order", f"o-{number}"), {"n": number})
            transaction.commit()
        yield opened


PAGES = ("/", "/?window=day", "/records", "/messages?state=pending")


def walked(page: Page, shop: Place) -> Iterator[str]:
    """Every kind of page, one after the other."""
    for path in PAGES:
        page.goto(shop.url + path)
        yield path
    for path, within in (("/records", "#list"), ("/messages?state=pending", "#list")):
        page.goto(shop.url + path)
        page.locator(f"{within} .name").first.click()
        page.wait_for_url(re.compile("/(records|messages)/[^?]+$"))
        page.locator("summary").last.click()
        yield page.url
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    yield "/sign-in"


def test_nobody_is_kept_out(browser: Browser, busy: Place) -> None:
    """Dashboard: axe finds no fault on any page that keeps somebody out, in light and in dark."""
    found: dict[str, list[str]] = {}
    # The browser lets no page run what is not of its own; this is how a test gets to.
    with visit(browser, busy, reduced_motion="reduce", bypass_csp=True) as page:
        for where in walked(page, busy):
            page.evaluate(AXE.read_text())
            found[where] = page.evaluate(FAULTS, {})
            page.emulate_media(color_scheme="dark")
            found[where] += page.evaluate(FAULTS, CONTRAST)
            page.emulate_media(color_scheme="light")
        page.set_content("<h1>A page with faults</h1><input><p style='color: #ccc; background: #fff'>pale</p>")
        page.evaluate(AXE.read_text())
        seen = {fault.partition(":")[0] for fault in page.evaluate(FAULTS, {})}
    assert len(found) >= 7
    assert {where: faults for where, faults in found.items() if faults} == {}
    assert seen >= {"label", "color-contrast"}


def test_it_fits_a_phone_and_a_desk(browser: Browser, busy: Place) -> None:
    """Dashboard: nothing scrolls sideways on a page, from a small phone to a desk."""
    with visit(browser, busy) as page:
        for where in walked(page, busy):
            for width in (360, 780, 1240):
                page.set_viewport_size({"width": width, "height": 844})
                assert page.evaluate("() => document.documentElement.scrollWidth") <= width, (where, width)


def test_a_keyboard_is_enough(browser: Browser, shop: Place) -> None:
    """R26: an unknown outcome is released with keys alone, from the overview on."""
    shop.unknown()
    with visit(browser, shop) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        to(page, "() => document.activeElement.closest('#open')")
        page.keyboard.press("Enter")
        page.wait_for_url("**/records/*")
        to(page, "() => document.activeElement.textContent.startsWith('It was not done')")
        page.keyboard.press("Enter")
        to(page, "() => document.activeElement.name === 'why' && document.activeElement.closest('.bad')")
        page.keyboard.type("never arrived")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("Released")
    assert shop.charge()[0] == 201


def to(page: Page, there: str) -> None:
    """Go on by Tab until it is reached."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(there):
            return
    raise AssertionError(f"Tab does not lead there: {there}")


def test_the_focus_stays_where_it_is(browser: Browser, shop: Place) -> None:
    """Dashboard: what is drawn anew while somebody goes through it with the keyboard gives the focus back."""
    shop.unknown("a-first-key-of-some-length")
    with visit(browser, shop) as page:
        page.locator(LIVE).wait_for()
        link = page.locator("#open").get_by_role("link", name="create_charge")
        link.focus()
        place = link.get_attribute("href")
        shop.unknown("a-second-key-of-some-length")
        expect(page.locator("#open li")).to_have_count(2)
        assert page.evaluate("document.activeElement.getAttribute('href')") == place


def test_no_script_is_needed(browser: Browser, shop: Place) -> None:
    """Dashboard: without JavaScript all is there but that it changes by itself."""
    shop.unknown()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(shop.url)
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.locator("#open").get_by_role("link", name="create_charge").click()
    page.get_by_text("It was not done").click()
    page.locator("details[open]").get_by_label("Why").fill("never arrived")
    page.get_by_role("button", name="Release").click()
    expect(page.locator("#life")).to_contain_text("never arrived")
    context.close()
    assert shop.charge()[0] == 201


def test_no_file_names_another_origin() -> None:
    """R22: fonts, scripts and pictures are its own; there is nothing to fetch from anywhere, and nothing is inline."""
    seen = 0
    for file in files("twicesafe.dashboard").joinpath("page").iterdir():
        seen += 1
        text = file.read_text("utf-8")
        assert set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", text)) <= {"http://www.w3.org/2000/svg"}, (
            file.name
        )
        assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", text) == [], file.name
    assert seen >= 10
