"""What commands for people have in common: who asks and why, and what a terminal can bear."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

from twicesafe.cli.terminal import PLAIN, Console, Table, typer
from twicesafe.core.record import Instant
from twicesafe.stores.contract import AuditEntry

STORE = Annotated[str, typer.Option(help="URL of a store: sqlite:///FILE, postgresql://USER:PASSWORD@HOST/DATABASE.")]


def _said(why: str) -> str:
    if not why.strip():
        raise typer.BadParameter("say what you know: it is all that whoever reads the trail later has")
    return why


WHY = Annotated[str, typer.Option(callback=_said, help="What you know, for whoever reads the audit trail.")]
WHO = Annotated[str, typer.Option(help="Your name in the audit trail; that of your account otherwise.")]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]

UNFOLDED: Final = 10_000
"""Columns of a terminal in which nothing is folded."""


def name_of(who: str) -> str:
    """What the trail calls whoever asks."""
    try:
        return as_text(who or getpass.getuser())
    except (KeyError, OSError, ImportError):
        # In a container accounts may have no name.
        return f"uid {os.getuid()}"


def as_text(argument: str) -> str:
    """What a database takes of an argument that was not typed in the terminal's encoding."""
    return argument.encode(errors="backslashreplace").decode()


def time_of(instant: Instant) -> str:
    """An instant of a store's."""
    try:
        return datetime.fromtimestamp(instant / 1_000_000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        # Kept for thousands of years.
        return "never"


def table_out(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """A table whose first column, the one to be copied, is in one piece. In a pipe every row is one line."""
    table = Table(box=PLAIN)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name == columns[0])
    for row in rows:
        table.add_row(*map(plain, row))
    width = None if sys.stdout.isatty() else UNFOLDED
    Console(highlight=False, markup=False, emoji=False, width=width).print(table)


def line_out(name: str, value: object) -> None:
    """One line of what is known."""
    sys.stdout.write(f"{name + ':':<13}{plain(value)}\n")


def audit_of(trail: Iterable[AuditEntry]) -> list[dict[str, str]]:
    """What people did about something, as JSON has it."""
    return [
        {"at": time_of(one.at), "who": one.who, "action": one.action, "why": one.why, "outcome": one.outcome}
        for one in trail
    ]


def audit_out(audit: Iterable[dict[str, str]]) -> None:
    """The same, a line each."""
    for one in audit:
        line_out("audit", f"{one['at']} {one['who']}: {one['action']}, {one['outcome']}. {one['why']}")


def plain(value: object) -> str:
    """For a terminal: what strangers chose may hold its control characters."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(value))
