"""Secrets planted in everything that goes in, and a search of everything that comes out for people to see."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.telemetry.recorded import Recorded
from twicesafe.errors import TwicesafeError
from twicesafe.observe import Event, fields, log_events, told_of

MARK: Final = "pl4nt3dv4lu3"


def _forms() -> frozenset[str]:
    """The mark as it is, in hexadecimal, and in base64 at each of its three places."""
    found = {MARK, MARK.encode().hex()}
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + MARK.encode())
        found.add(encoded[4 if before else 0 : -4].decode())
    return frozenset(found)


FORMS: Final = _forms()


def planted(what: str) -> str:
    """A secret. Its last four characters, which are a key's hint, give nothing away."""
    return f"{MARK}-{what}-of-ada-0123456789"


KEY, BODY, ANSWER, PASSWORD = planted("key"), planted("body"), planted("answer"), planted("password")


class Caused(Exception):  # noqa: N818 - a driver's
    """What a driver or an application says of what it was given."""

    def __init__(self) -> None:
        super().__init__(f"duplicate value {planted('cause')}")


def by_a_driver(error: Exception) -> Exception:
    """A store's error, of what a driver said."""
    error.__cause__ = Caused()
    return error


class Searched(logging.Handler):
    """An observer and a log's handler. `leaks` is where something was found that is for nobody's eyes."""

    counts = True

    def __init__(self) -> None:
        super().__init__(0)
        self.recorded = Recorded()
        self.around = self.recorded.around
        self.leaks: list[str] = []
        self.texts = 0
        self._formatter = logging.Formatter("%(message)s")

    def saw(self, where: str, text: object) -> None:
        """Search a text that somebody would see."""
        self.texts += 1
        said = str(text)
        for form in FORMS:
            at = said.find(form)
            if at >= 0:
                self.leaks.append(f"{where}: ...{said[max(0, at - 150) : at + 60]}...")

    def __call__(self, event: Event) -> None:
        self.saw(f"event {event.name}", fields(event))
        self.saw(f"event {event.name}", event._replace(error=None))
        if event.error is not None:
            self.saw(f"event {event.name}, told of its error", told_of(event.error))
            if isinstance(event.error, TwicesafeError):
                self.error(f"event {event.name}", event.error)
        self.recorded(event)
        log_events(event)

    def emit(self, record: logging.LogRecord) -> None:
        """A record of this package's, with the traceback that a formatter would print, and whatever is on it besides.

        What a framework logs of its application's own exceptions is theirs.
        """
        if record.name.startswith("twicesafe"):
            self.saw(f"log {record.name}", self._formatter.format(record))
            extra = {name: value for name, value in vars(record).items() if name.startswith("twicesafe_")}
            self.saw(f"fields of log {record.name}", extra)

    def error(self, where: str, error: BaseException) -> None:
        """An error of this package: its own words, and all that it holds for whoever prints it."""
        self.saw(f"{where}: str of {type(error).__name__}", str(error))
        self.saw(f"{where}: repr of {type(error).__name__}", repr(error))
        self.saw(f"{where}: {type(error).__name__} by itself", "".join(traceback.format_exception_only(error)))

    def problem(self, where: str, reply: Any) -> None:
        """An answer of this package's own making. A replay is the application's, and holds what it holds."""
        if reply.header(b"content-type") == b"application/problem+json":
            self.saw(f"{where}: problem document", reply.body.decode())
            self.saw(f"{where}: its lines", [line for line in reply.lines if line[0] != b"set-cookie"])
            json.loads(reply.body)

    def end(self) -> None:
        """What was exported; and that nothing was found, of no little that was searched."""
        self.saw("spans and metrics", self.recorded.text)
        assert self.leaks == []
        assert self.texts > 5


@contextmanager
def searching() -> Iterator[Searched]:
    """Everything that is said within, at whatever level."""
    searched = Searched()
    root, own = logging.getLogger(), logging.getLogger("twicesafe")
    before = own.level
    own.setLevel(logging.DEBUG)
    root.addHandler(searched)
    try:
        yield searched
        searched.end()
    finally:
        root.removeHandler(searched)
        own.setLevel(before)
        searched.recorded.close()
