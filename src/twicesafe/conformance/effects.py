"""How often the work was done, as the target itself tells: asked by a GET, a statement of SQL, or a command."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.findings import Answer, Lines, Request, values
from twicesafe.conformance.templates import Intent, fill, names_unique

Fetch = Callable[[Request], Answer]
"""Sends a request and comes back with its answer."""


class Counter(Protocol):
    """Counts effects. What differs between two counts is what happened in between."""

    @property
    def per_intent(self) -> bool:
        """Whether it counts those of one intent only, and so begins at nothing."""

    @property
    def asks(self) -> tuple[str, Lines]:
        """The URL that it gets and with which lines; empty where it asks no service."""

    def texts(self) -> list[str]:
        """Everything in which a place may stand."""

    def count(self, intent: Intent, fetch: Fetch, patience: float) -> int:
        """The effects so far, within `patience` seconds. CannotCheckError where there is no number."""

    def for_caller(self, lines: Lines) -> Counter:
        """The same for a caller with these header lines."""

    def at(self, origin: str, server: str) -> Counter:
        """The same on another server, where it asks this one."""


@dataclass(frozen=True, slots=True)
class HttpCounter:
    """A GET whose answer has a number or an array at a JSON pointer, or a text once per effect."""

    url: str
    lines: Lines = ()
    pointer: str = ""
    occurrences: str = ""
    """A template: each place where it stands in the answer is an effect."""

    def __post_init__(self) -> None:
        if self.pointer and not self.pointer.startswith("/"):
            raise CannotCheckError(f"{self.pointer!r} is no JSON pointer: they begin with a slash, as in /orders")

    @property
    def asks(self) -> tuple[str, Lines]:
        return self.url, self.lines

    @property
    def per_intent(self) -> bool:
        return names_unique(self.texts())

    def texts(self) -> list[str]:
        return [self.url, self.occurrences, *(value for _, value in self.lines)]

    def at(self, origin: str, server: str) -> Counter:
        return replace(self, url=server + self.url.removeprefix(origin)) if self.url.startswith(origin + "/") else self

    def for_caller(self, lines: Lines) -> Counter:
        """With the caller's credentials in place of the same ones here."""
        mine = tuple((name, next(iter(values(lines, name)), value)) for name, value in self.lines)
        return replace(self, lines=mine)

    def count(self, intent: Intent, fetch: Fetch, patience: float) -> int:  # noqa: ARG002 - the fetch has its own
        lines = tuple((name, fill(value, intent)) for name, value in self.lines)
        answer = fetch(Request("GET", fill(self.url, intent), lines, b""))
        if not answer.succeeded:
            raise CannotCheckError(f"effects cannot be counted: GET {self.url} answered {answer.status}")
        if self.occurrences:
            return answer.body.count(fill(self.occurrences, intent).encode())
        try:
            found = at(json.loads(answer.body), self.pointer)
        except (ValueError, RecursionError):
            raise CannotCheckError(f"effects cannot be counted: GET {self.url} did not answer with JSON") from None
        if isinstance(found, list):
            return len(found)
        return _number(found, f"at {self.pointer or 'the root'} of what GET {self.url} answered")


@dataclass(frozen=True, slots=True)
class SqlCounter:
    """A statement of SQL with one number as its result, on sqlite:///FILE or postgresql://..."""

    database: str
    statement: str

    @property
    def asks(self) -> tuple[str, Lines]:
        return "", ()

    @property
    def per_intent(self) -> bool:
        return names_unique(self.texts())

    def texts(self) -> list[str]:
        return [self.statement]

    def for_caller(self, lines: Lines) -> Counter:  # noqa: ARG002 - a database sees every caller's
        return self

    def at(self, origin: str, server: str) -> Counter:  # noqa: ARG002
        return self

    def count(self, intent: Intent, fetch: Fetch, patience: float) -> int:  # noqa: ARG002
        statement = fill(self.statement, intent)
        parts = urlsplit(self.database)
        if parts.scheme == "sqlite":
            return _number(
                _sqlite(unquote(parts.path.removeprefix("/")), statement, patience), f"from {self.statement!r}"
            )
        if parts.scheme in ("postgresql", "postgres"):
            return _number(_postgresql(self.database, statement, patience), f"from {self.statement!r}")
        raise CannotCheckError(f"effects are counted in sqlite:/// and postgresql:// only, not in {parts.scheme}:")


@dataclass(frozen=True, slots=True)
class CommandCounter:
    """A command that prints a number. Run as it is, by no shell."""

    command: str

    @property
    def asks(self) -> tuple[str, Lines]:
        return "", ()

    @property
    def per_intent(self) -> bool:
        return names_unique(self.texts())

    def texts(self) -> list[str]:
        return [self.command]

    def for_caller(self, lines: Lines) -> Counter:  # noqa: ARG002 - a command has its own credentials
        return self

    def at(self, origin: str, server: str) -> Counter:  # noqa: ARG002
        return self

    def count(self, intent: Intent, fetch: Fetch, patience: float) -> int:  # noqa: ARG002
        return _number(run(self.command, patience, intent).strip(), f"printed by {self.command!r}")


def run(command: str, patience: float, intent: Intent | None = None) -> str:
    """Run a command to its end and return what it printed. CannotCheckError where it fails or takes too long.

    With an `intent` its places are filled in; the error has it as it was written: what stands in the environment may be
    a secret.
    """
    try:
        ended = subprocess.run(  # noqa: S603 - the person who checks wrote it
            shlex.split(command if intent is None else fill(command, intent)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotCheckError(f"{command!r} took longer than {patience:.0f} s") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CannotCheckError(f"{command!r} could not be run: {why}") from None
    if ended.returncode:
        said = ended.stderr.strip().splitlines()
        raise CannotCheckError(f"{command!r} ended with {ended.returncode}{f': {said[-1]}' if said else ''}")
    return ended.stdout


def at(document: Any, pointer: str) -> Any:
    """What a JSON pointer points to; None where there is nothing."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list):
            document = document[int(name)] if name.isdecimal() and int(name) < len(document) else None
        elif isinstance(document, dict):
            document = document.get(name)
        else:
            return None
    return document


def _number(found: Any, where: str) -> int:
    try:
        return int(found)
    except (TypeError, ValueError, OverflowError):
        raise CannotCheckError(f"effects cannot be counted: there is no number {where}") from None


def _sqlite(file: str, statement: str, patience: float) -> object:
    try:
        with closing(sqlite3.connect(file, timeout=patience)) as connection:
            return next(iter(connection.execute(statement).fetchone() or ()), None)
    except sqlite3.Error as error:
        raise CannotCheckError(f"effects cannot be counted in {file}: {error}") from error


def _postgresql(url: str, statement: str, patience: float) -> object:
    try:
        import psycopg
    except ModuleNotFoundError:
        raise CannotCheckError("the package psycopg is missing: pip install 'twicesafe[psycopg]'") from None
    try:
        with psycopg.connect(url, connect_timeout=max(2, int(patience)), autocommit=True) as connection:
            return next(iter(connection.execute(statement.encode()).fetchone() or ()), None)
    except psycopg.Error as error:
        raise CannotCheckError(f"effects cannot be counted: {' '.join(str(error).split())}") from error
