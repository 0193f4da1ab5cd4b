"""The dashboard's pages, made of templates that escape all they show."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined

from twicesafe.core.lifecycle import Standing
from twicesafe.core.record import Instant
from twicesafe.dashboard.plots import duration

ASSETS: Final[Mapping[str, str]] = {
    "dashboard.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
}
"""What pages load, all of it from here."""

WORDS: Final = {
    Standing.CLAIMED: "in progress",
    Standing.STALE: "stale",
    Standing.ANSWERED: "answered",
    Standing.COMPLETED: "completed",
    Standing.TOMBSTONE: "tombstone",
    Standing.UNKNOWN: "unknown",
    Standing.FREE: "forgotten",
}


def page(template: str, /, **shown: Any) -> str:
    """One page."""
    return _environment().get_template(f"{template}.html").render(shown)


@cache
def asset(name: str) -> bytes:
    """One of ASSETS."""
    return files("twicesafe.dashboard").joinpath("page", name).read_bytes()


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"duration": duration, "moment": _moment, "iso": _iso, "number": _number, "plain": _plain}
    made.globals |= {"WORDS": WORDS}
    return made


def _read(name: str) -> str:
    return files("twicesafe.dashboard").joinpath("page", name).read_text(encoding="utf-8")


def _moment(instant: Instant) -> str:
    """For people, in UTC."""
    try:
        when = datetime.fromtimestamp(instant / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return "never"
    return f"{when.day} {when:%b %Y, %H:%M:%S}"


def _iso(instant: Instant) -> str:
    try:
        return datetime.fromtimestamp(instant / 1_000_000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return "9999-12-31T23:59:59+00:00"


def _number(number: int) -> str:
    return f"{number:,}"


def _plain(text: object) -> str:
    """What strangers chose may hold control characters, and turn the direction of what stands around it."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))
