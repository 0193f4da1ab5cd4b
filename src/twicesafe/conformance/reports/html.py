"""A report as one page of HTML that stands alone: no script, nothing fetched, readable in light, in dark and on paper.

It escapes all it shows, and its policy lets a browser run or load nothing, should an escape ever be missed.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from twicesafe.conformance.findings import Verdict
from twicesafe.conformance.reports.shown import ORDER, Shown
from twicesafe.conformance.scores import Level

WORDS: Final = {
    Verdict.FAIL: "Failed",
    Verdict.INCONCLUSIVE: "Nothing shown",
    Verdict.UNSUPPORTED: "Not offered",
    Verdict.PASS: "Passed",
}

EXPLAINED: Final = {
    Verdict.FAIL: "somebody is harmed or misled",
    Verdict.INCONCLUSIVE: "nobody can tell from here; the finding says what is missing",
    Verdict.UNSUPPORTED: "and no harm done",
    Verdict.PASS: "in the exchanges below",
}

LEVELS: Final = {
    Level.REQUIRED: "Required by",
    Level.OPTIONAL: "Left open by",
    Level.DIFFERENT: "Otherwise with",
}


def as_html(report: Shown) -> str:
    """The report as a page."""
    return _template().render(report=report)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters |= {"seconds": _seconds, "day": _day, "inline": _inline}
    style = _read("report.css")
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    return environment.get_template(
        "report.html",
        globals={
            "style": Markup(style),  # noqa: S704 - the package's own
            "style_hash": f"sha256-{digest}",
            "ORDER": ORDER,
            "WORDS": WORDS,
            "EXPLAINED": EXPLAINED,
            "LEVELS": LEVELS,
        },
    )


def _read(name: str) -> str:
    return files("twicesafe.conformance.reports").joinpath("page", name).read_text(encoding="utf-8")


def _inline(text: str) -> Markup:
    """Text with what is between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def _day(when: datetime) -> str:
    return f"{when.day} {when:%B %Y, %H:%M} {when.tzname() or ''}".rstrip()
