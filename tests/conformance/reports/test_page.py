"""The page that people forward: it stands alone, runs nothing, and can be read by everybody, on paper too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.conformance.reports.examples import BODY, HOSTILE, answer, exchange, finding, hostile, report, request, usual
from tests.servers.chromium import chromium
from twicesafe.conformance.findings import Report, Verdict
from twicesafe.conformance.reports import Form, write

pytestmark = pytest.mark.xdist_group("report-page")


def page_of(made: Report) -> str:
    """The page as it stands in a file."""
    stream = StringIO()
    write(made, stream, Form.HTML)
    return stream.getvalue()


class Elements(HTMLParser):
    """Every element of a page with its attributes, and whether all are closed."""

    EMPTY = frozenset({"meta", "circle", "br", "link", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> where it closes nothing"


PAGES = {"usual": usual(), "hostile": hostile(), "nothing": report()}


@pytest.mark.parametrize("which", PAGES)
def test_it_fetches_nothing_and_runs_nothing(which: str) -> None:
    """R43: there is no element that loads or runs, no handler, no style beside the sheet, whatever a target said."""
    elements = Elements(page_of(PAGES[which]))
    assert elements.open == []
    allowed = {
        "html", "head", "meta", "title", "style", "body", "header", "main", "section", "article", "footer", "p", "h1",
        "h2", "h3", "div", "span", "b", "code", "pre", "ul", "ol", "li", "dl", "dt", "dd", "time", "details", "summary",
        "a", "svg", "circle", "text", "tspan",
    }  # fmt: skip
    for tag, attributes in elements.found:
        assert tag in allowed, tag
        assert not {name for name in attributes if name.startswith("on") or name in ("style", "src", "srcdoc")}, tag
        if tag == "a":
            assert re.match(r"#trial-|https://", attributes["href"] or ""), attributes


def test_its_policy_allows_its_own_sheet_alone() -> None:
    """R43: should an escape ever be missed, a browser runs and loads nothing all the same."""
    (policy,) = (
        attributes["content"] or ""
        for tag, attributes in Elements(page_of(usual())).found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/=]{44}'; base-uri 'none'; form-action 'none'", policy
    )


def test_its_sheet_names_no_other_place() -> None:
    """R43: fonts and pictures are the reader's own."""
    style = page_of(usual()).partition("<style>")[2].partition("</style>")[0]
    assert style and not re.search(r"url\(|@import|@font-face|//[a-z]", style)


def test_every_heading_and_region_has_its_place() -> None:
    """R43: one h1, no level left out, names for regions, and each link within the page leads somewhere."""
    elements = Elements(page_of(usual())).found
    levels = [int(tag[1]) for tag, _ in elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1 and all(after - before <= 1 for before, after in pairwise(levels))
    places = {attributes["id"] for _, attributes in elements if "id" in attributes}
    wanted = [attributes["href"] or "" for tag, attributes in elements if tag == "a"]
    assert {href[1:] for href in wanted if href.startswith("#")} <= places
    for tag, attributes in elements:
        if tag == "section" or attributes.get("role") in ("region", "img"):
            assert {"aria-label", "aria-labelledby"} & attributes.keys(), (tag, attributes)


def test_a_meaning_may_have_code_in_it() -> None:
    """R43: what stands between backticks is code, and hostile all the same."""
    assert "give one as <code>other_caller</code>." in page_of(usual())


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all; no test here runs an event loop beside Playwright's."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Iterator[Visit]:
    """A reader without and with JavaScript."""
    made = Visit(browser, tmp_path / "report.html")
    yield made
    made.close()


class Visit:
    """Opens reports as files, as whoever gets one by mail does, and writes down what went wrong."""

    def __init__(self, browser: Browser, file: Path) -> None:
        self._browser = browser
        self._file = file
        self._pages: list[Page] = []
        self.complaints: list[str] = []

    def open(self, made: Report, *, script: bool = False, scheme: str = "light", width: int = 1200) -> Page:
        """The page of a report."""
        self._file.write_text(page_of(made), encoding="utf-8")
        dark = scheme == "dark"
        page = self._browser.new_page(
            java_script_enabled=script,
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": 900},
        )
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.complaints.append(request.url) if request.url != self._url else None)
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.goto(self._url)
        self._pages.append(page)
        return page

    @property
    def _url(self) -> str:
        return self._file.as_uri()

    def close(self) -> None:
        for page in self._pages:
            page.close()


def test_script_in_evidence_does_not_run(visit: Visit) -> None:
    """R43: what a target answers is text to a browser that would run scripts, opened or not; nothing is fetched."""
    page = visit.open(hostile(), script=True)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.mouse.move(300, 300)
    assert page.evaluate("document.scripts.length + document.images.length") == 0
    assert page.title().endswith("trials failed: " + page.locator(".target").inner_text().strip())
    assert page.locator("article").count() == len(HOSTILE)
    assert visit.complaints == []


def test_evidence_opens_without_javascript(visit: Visit) -> None:
    """R43: transcripts are folded, and unfold at the key of somebody without a mouse, without any script."""
    page = visit.open(usual())
    details = page.locator("#trial-parallel-duplicates details")
    shown = details.get_by_text("no answer within 15 s")
    assert not shown.is_visible()
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    assert shown.is_visible()
    assert "Bearer ***" in details.inner_text()
    assert visit.complaints == []


def test_the_summary_is_on_top(visit: Visit) -> None:
    """R43: verdict, score, counts, target and time are seen before anything has been scrolled."""
    page = visit.open(usual())
    assert page.locator("h1").inner_text() == "One trial failed"
    for text in ("1 of 4 trials passed", "Score for ietf", "9 counted, 2 wanted", "30 November 2026, 20:31 UTC"):
        found = page.get_by_text(text).first.bounding_box()
        assert found is not None and found["y"] + found["height"] < 900, text
    assert page.locator("h2[id]").first.inner_text().startswith("Failed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(visit: Visit, scheme: str) -> None:
    """R43: in light and in dark all text has a contrast of 4.5 to its ground."""
    page = visit.open(usual(), script=True, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    faint = page.evaluate(CONTRAST)
    assert faint["seen"] > 60 and faint["low"] == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(13, 15, 20)" if scheme == "dark" else "rgb(245, 246, 248)"
    )


CONTRAST = """() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = channels(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
  };
  let seen = 0;
  const low = [];
  for (const element of document.querySelectorAll("body *:not(svg, svg *)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility()) continue;
    seen += 1;
    const [a, b] = [light(channels(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${element.className || element.tagName} ${ratio.toFixed(2)} ${element.textContent}`);
  }
  return { seen, low };
}"""


@pytest.mark.parametrize("width", [320, 1200])
def test_nothing_is_wider_than_the_screen(visit: Visit, width: int) -> None:
    """R43: on a telephone and on a desk nobody scrolls sideways, opened transcripts and hostile words included."""
    page = visit.open(hostile(), script=True, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_request_that_was_sent_again_is_not_read_again(visit: Visit) -> None:
    """R43: of a retry that is the request before, byte for byte, the page says that instead of showing it twice."""
    first, second = exchange(answered=answer()), exchange(request(body=BODY + b" "), answer())
    page = visit.open(report(finding(evidence=(first, first, second))))
    page.locator("summary").click()
    said = page.locator(".exchanges > li").all_inner_texts()
    assert ["byte for byte" in text for text in said] == [False, True, False]
    assert ["Authorization:" in text for text in said] == [True, False, True]


def test_paper_shows_the_evidence_of_failures(visit: Visit) -> None:
    """R43: printed, what failed has its transcripts though nobody opened them, and the rest does not."""
    page = visit.open(usual(), script=True, scheme="dark")
    page.emulate_media(media="print", color_scheme="light")
    height = "(one) => one.getBoundingClientRect().height"
    failed = page.locator("#trial-parallel-duplicates .exchanges").evaluate(height)
    passed = page.locator("#trial-replay details").evaluate(height)
    assert failed > 100 > passed
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(20, 23, 31)"


def test_groups_come_in_the_order_of_harm(visit: Visit) -> None:
    """R43: failures first, then what showed nothing, what is not offered, and what passed."""
    page = visit.open(usual())
    verdicts = page.locator("article").evaluate_all("found => found.map(one => one.className.split(' ')[1])")
    assert verdicts == [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED, Verdict.PASS]
