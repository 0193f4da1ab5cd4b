"""Reads statements.sql, and what MySQL says otherwise, and renders it for one dialect and one driver.

A mistake in a file (a name twice, a statement that one dialect lacks, an unknown macro) shows when it is read; each
statement is prepared on each database by the tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import Any, Final, NamedTuple

from twicesafe.stores.sql.rows import COLUMNS
from twicesafe.stores.steps import Statement


class Dialect(StrEnum):
    """A kind of database."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    """MariaDB too."""


class Placeholder(StrEnum):
    """How a driver spells a parameter."""

    QUESTION_MARK = "?"
    NUMBER = "$1"
    PERCENT = "%s"


NOW: Final[Mapping[Dialect, str]] = {
    Dialect.SQLITE: "twicesafe_now()",
    Dialect.POSTGRESQL: "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    Dialect.MYSQL: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
}
"""The database's clock (I12). SQLite has none of use; the store registers the host's, which all processes on a file
share. now() in PostgreSQL is the transaction's start: leases would be born expired. MySQL's is the statement's start,
and in UTC, whatever the session's time zone."""

CHANGED: Final[dict[Dialect, str]] = {Dialect.SQLITE: "", Dialect.POSTGRESQL: "RETURNING 1", Dialect.MYSQL: ""}
"""How a statement tells what it changed. SQLite counts for nothing, and gathers what it is to return in a table; MySQL
counts, and returns nothing."""

SETTLED: Final[Mapping[Dialect, str]] = CHANGED | {
    Dialect.POSTGRESQL: (
        "RETURNING CASE WHEN NOT"
        " pg_try_advisory_xact_lock(('x' || encode(substr(twicesafe_records.digest, 9, 8), 'hex'))::bit(64)::bigint)"
        " THEN twicesafe_records.digest END"
    )
}
"""CHANGED, with the digest in it where somebody waits for the key. PostgreSQL is asked for a lock that only those who
wait have, and keeps it until the commit: whoever begins to wait in between does not get theirs, and looks again."""

_HEAD = re.compile(r"-- name: ([a-z_]+)(?: \[([a-z]+)\])?")
_PARAMETER = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")
_MACRO = re.compile(r"\{(\w+)\}")
_RETURNS = re.compile(r"\ASELECT\b|\bRETURNING\b")
_WRITES = ("INSERT", "UPDATE", "DELETE", "WITH")


class StatementsError(ValueError):
    """statements.sql is wrong. No user can cause it."""


class Source(NamedTuple):
    """One statement as the file has it."""

    name: str
    dialect: Dialect | None
    text: str


class Query(NamedTuple):
    """One statement rendered; `pick` takes its parameters, in the driver's order, from a mapping."""

    name: str
    text: str
    pick: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    writes: bool
    returns: bool


class Queries:
    """All statements of one dialect. Called with a name and its parameters it gives the Statement to perform."""

    def __init__(
        self,
        dialect: Dialect,
        placeholder: Placeholder,
        *,
        now_sql: str | None = None,
        rewrite: Callable[[tuple[Source, ...]], tuple[Source, ...]] = tuple,
    ) -> None:
        """`now_sql` replaces the database's clock by another expression; tests drive time with it.

        `rewrite` changes what the file says before it is rendered, for another layout of the tables.
        """
        self.dialect: Final = dialect
        clock = NOW[dialect] if now_sql is None else f"({now_sql})"
        macros = {"now": clock, "columns": ", ".join(COLUMNS), "changed": CHANGED[dialect], "settled": SETTLED[dialect]}
        self._queries: Final = {
            source.name: _render(source, placeholder, macros) for source in rewrite(choose(sources(), dialect))
        }
        self._ready: Final = {
            query.name: Statement(query.name, query.text, (), query.writes, query.returns)
            for query in self._queries.values()
            if query.pick is _nothing
        }
        """Those without parameters."""

    def __call__(self, name: str, /, **parameters: Any) -> Statement:
        ready = self._ready.get(name)
        if ready is not None:
            return ready
        query = self._queries[name]
        return Statement(name, query.text, query.pick(parameters), query.writes, query.returns)

    def all(self) -> Mapping[str, Query]:
        """Every statement by its name."""
        return self._queries


def inlined(statement: Statement) -> str:
    """The text with its parameters written into it, for drivers that send several statements in one go.

    Whole numbers only; anything else is a TypeError.
    """
    if not all(type(value) is int for value in statement.parameters):
        raise TypeError(f"statement {statement.name!r} has parameters that are not whole numbers")
    values = iter(statement.parameters)
    if "$1" in statement.text:
        return re.sub(r"\$(\d+)", lambda found: str(statement.parameters[int(found[1]) - 1]), statement.text)
    return re.sub(r"%s|\?", lambda _: str(next(values)), statement.text)


@cache
def sources() -> tuple[Source, ...]:
    """The statements of the files."""
    folder = files("twicesafe.stores.sql")
    names = ("statements.sql", "statements_mysql.sql")
    return parse("\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names))


def parse(text: str) -> tuple[Source, ...]:
    """Cut the file's text into its statements; comments are left out."""
    found: dict[tuple[str, Dialect | None], list[str]] = {}
    lines: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("-- name:"):
            head = _HEAD.fullmatch(line)
            if head is None or head[2] not in (None, *Dialect):
                raise StatementsError(f"line {number}: not a statement's name: {line!r}")
            key = head[1], None if head[2] is None else Dialect(head[2])
            if key in found:
                raise StatementsError(f"line {number}: {line!r} stands twice")
            lines = found[key] = []
        elif line.strip() and not line.startswith("--"):
            if lines is None:
                raise StatementsError(f"line {number}: a statement without a name")
            lines.append(line)
    return tuple(Source(name, dialect, _statement(name, lines)) for (name, dialect), lines in found.items())


def _statement(name: str, lines: list[str]) -> str:
    text = "\n".join(lines)
    if text.count(";") != 1 or not text.endswith(";"):
        raise StatementsError(f"{name}: must be one statement that ends in a semicolon")
    return text[:-1]


def choose(every: tuple[Source, ...], dialect: Dialect) -> tuple[Source, ...]:
    """What one dialect uses: its own form where it has one, else the common one.

    A statement that has forms of its own only, and none for this dialect, is one this dialect does without.
    """
    own = {source.name: source for source in every if source.dialect is dialect}
    common = {source.name: source for source in every if source.dialect is None}
    return tuple((common | own).values())


def _render(source: Source, placeholder: Placeholder, macros: Mapping[str, str]) -> Query:
    def macro(found: re.Match[str]) -> str:
        try:
            return macros[found[1]]
        except KeyError:
            raise StatementsError(f"{source.name}: unknown macro {found[0]}") from None

    order: list[str] = []

    def parameter(found: re.Match[str]) -> str:
        if placeholder is not Placeholder.NUMBER:
            order.append(found[1])
            return placeholder.value
        if found[1] not in order:
            order.append(found[1])
        return f"${order.index(found[1]) + 1}"

    text = _MACRO.sub(macro, source.text).rstrip()
    if placeholder is Placeholder.PERCENT:
        text = text.replace("%", "%%")
    text = _PARAMETER.sub(parameter, text)
    return Query(source.name, text, _picker(order), text.startswith(_WRITES), _RETURNS.search(text) is not None)


def _picker(order: list[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if len(order) > 1:
        return itemgetter(*order)
    if order:
        name = order[0]
        return lambda parameters: (parameters[name],)
    return _nothing


def _nothing(_parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    return ()
