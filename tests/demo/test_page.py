"""The page as it is served: on its own, under a strict policy, readable in light and dark, on a desk and in a hand."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from importlib.resources import files

import pytest
from playwright.sync_api import Browser, Page

from tests.demo.service import PATIENCE, Demo, demo
from tests.demo.shop import Shop

pytestmark = pytest.mark.xdist_group("demo")


def fetch(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body, whatever the status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as answer:
            return answer.status, dict(answer.headers.items()), answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, dict(refused.headers.items()), refused.read()


def test_it_allows_itself_nothing_but_its_own_files(service: Demo) -> None:
    """R22: no inline script or style, no other origin, no frame, no form; nothing is stored by a browser."""
    status, headers, _ = fetch(service.url)
    policy = headers["content-security-policy"]
    assert status == 200
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy and "http" not in policy
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_no_file_names_another_origin() -> None:
    """Demo: fonts, scripts and pictures are its own; there is nothing to fetch from anywhere."""
    seen = 0
    for file in files("twicesafe.demo").joinpath("page").iterdir():
        seen += 1
        found = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", file.read_text("utf-8")))
        assert found <= {"http://www.w3.org/2000/svg"}, file.name
    assert seen >= 10


def test_another_name_for_this_machine_is_refused(service: Demo) -> None:
    """R22: a name that somebody else's DNS points here is not this page's."""
    status, _, _ = fetch(service.url, Host="shop.example")
    assert status == 400


def test_whoever_is_not_known_is_not_served(service: Demo) -> None:
    """R6: the caller's identity is the server's own cookie; a request without one is refused, and charges nothing."""
    for lane in ("naive", "safe"):
        request = urllib.request.Request(
            f"{service.url}/{lane}/charges",
            data=b'{"cart":"8e03978e-40d5-43e8-bc93-6894a57f9324","espresso":2,"moka":1}',
            headers={"content-type": "application/json", "idempotency-key": "key-1", "x-request-id": "1"},
        )
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=PATIENCE)
        assert service.charges(lane, "") == []


def test_two_shoppers_do_not_meet(browser: Browser, service: Demo) -> None:
    """I7: each visit has an identity of its own, and sees its own charges only."""
    with Shop(browser, service) as one, Shop(browser, service) as other:
        one.pay()
        other.page.reload()
        other.page.locator("#safe .server:not(:empty)").wait_for()
        assert one.shopper != other.shopper
        assert other.effects() == {"naive": [], "safe": []}
        assert other.shown_ledger("safe") == []


def test_the_code_it_shows_is_the_code_that_runs(browser: Browser, service: Demo) -> None:
    """Demo: the two endpoints are shown as they are written, and what twicesafe adds is marked."""
    source = files("twicesafe.demo").joinpath("payments.py").read_text("utf-8")
    with Shop(browser, service) as shop:
        added = shop.page.locator("#safe-code ins").all_inner_texts()
        assert len(added) == 4
        assert '@idempotency.operation(effects="transactional", required=True)' in added
        for line in (*added, *shop.page.locator("#naive-code span").all_inner_texts()):
            assert line.strip() in source


def test_it_says_when_the_demo_is_gone(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    """R34: a page whose servers have vanished says so, keeps key and bytes, and offers to ask again."""
    with demo(tmp_path_factory.mktemp("gone")) as running, Shop(browser, running) as shop:
        key = shop.key()
        assert running.stop() == 0
        shop.page.locator("#pay").click()
        shop.wait()
        assert "The key and the bytes are kept" in shop.story()
        assert shop.key() == key
        assert shop.page.locator("#pay").inner_text() == "Ask again"
        assert shop.page.locator("#safe .server").inner_text() == "not connected"


SIZES = [(390, 844), (768, 1024), (1320, 900), (1920, 1080)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen(browser: Browser, service: Demo, scheme: str) -> None:
    """Demo: nothing is cut off or scrolls sideways, from a phone to a projector."""
    with Shop(browser, service, color_scheme=scheme) as shop:
        shop.throw("lose").pay()
        for width, height in SIZES:
            shop.page.set_viewport_size({"width": width, "height": height})
            assert shop.page.evaluate("() => document.documentElement.scrollWidth") <= width
            assert cut_off(shop.page) == []


def cut_off(page: Page) -> list[str]:
    """Texts that are wider than the place they have."""
    script = """() => [...document.querySelectorAll("h1, h2, p, button, b, small, code, .label, .result, .amount")]
      .filter((it) => it.getClientRects().length > 0 && !it.closest("pre") && it.scrollWidth > it.clientWidth + 1)
      .filter((it) => getComputedStyle(it).display !== "inline")
      .map((it) => it.textContent)"""
    found: list[str] = page.evaluate(script)
    return found


CONTRAST = """
() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = ([r, g, b]) => [r, g, b]
    .map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (it) => {
    for (let at = it; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return rgba(getComputedStyle(document.body).backgroundColor);
  };
  const poor = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const it = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || it.getClientRects().length === 0 || it.closest(":disabled")) continue;
    const [light, dark] = [luminance(rgba(getComputedStyle(it).color)), luminance(behind(it))].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) poor.push(`${texts.currentNode.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  return poor;
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read(browser: Browser, service: Demo, scheme: str) -> None:
    """Demo: text stands out from what is behind it at least 4.5 to 1 (WCAG AA), in light and in dark."""
    with Shop(browser, service, color_scheme=scheme, reduced_motion="reduce") as shop:
        shop.throw("lose", "edit").pay()
        assert shop.page.evaluate(CONTRAST) == []


def test_nothing_moves_for_those_who_asked_for_that(browser: Browser, service: Demo) -> None:
    """Demo: with prefers-reduced-motion no animation or transition runs."""
    with Shop(browser, service, reduced_motion="reduce") as shop:
        shop.throw("lose").pay()
        assert shop.effects()["safe"] == [84_00]
        assert shop.page.evaluate("() => document.getAnimations().length") == 0


def test_every_control_has_a_name(browser: Browser, service: Demo) -> None:
    """Demo: a screen reader is told what each control does, and what just happened."""
    with Shop(browser, service) as shop:
        for name in ("Lose the answer", "Slow provider", "Kill the server", "Double click", "Edit the cart"):
            assert shop.page.get_by_role("switch", name=name).count() == 1
        for name in ("One bag less", "One bag more", "Pay €84.00"):
            assert shop.page.get_by_role("button", name=name).count() == 1
        assert shop.page.locator(".story[role=status]").inner_text() == "Choose what goes wrong, then pay."
