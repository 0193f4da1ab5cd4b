"""`twicesafe dashboard`."""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

from twicesafe.cli.existing import check_there
from twicesafe.cli.terminal import COULD_NOT, needing, typer
from twicesafe.cli.worker import load
from twicesafe.errors import ConfigurationError
from twicesafe.stores.urls import open_store

EPILOG: Final = """
\b
Examples:
  twicesafe dashboard --hash ann >> people                asks for a password, and writes a line for ann
  twicesafe dashboard --store sqlite:///shop.db --people people
  twicesafe dashboard --store postgresql://app@host/shop --people people --listen 127.0.0.1:8090 \\
      --app shop.work:finders                             with functions that know what became of operations

\b
Nobody may look before somebody is in --people. Put a proxy with HTTPS in front of it, and say --https, where it is
reached from other machines. A process of its own knows what the store knows: replays, conflicts and mismatches are
counted where the dashboard is mounted in the application, see docs/dashboard.md.

\b
Exit status:
  0  stopped by Ctrl-C or SIGTERM
  2  it could not be started; one line on standard error says why
"""

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):(\d{1,5})")


def dashboard(
    store: Annotated[
        str, typer.Option(envvar="TWICESAFE_STORE", help="URL of a store: sqlite:///FILE, postgresql://...")
    ] = "",
    people: Annotated[
        Path | None,
        typer.Option(
            envvar="TWICESAFE_DASHBOARD_PEOPLE", metavar="FILE", help="Who may look: lines that --hash writes."
        ),
    ] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where browsers find it.")] = "127.0.0.1:8090",
    https: Annotated[bool, typer.Option("--https", help="Browsers come by HTTPS, through a proxy in front.")] = False,
    secret: Annotated[
        str,
        typer.Option(
            envvar="TWICESAFE_DASHBOARD_SECRET",
            show_default=False,
            help="Signs cookies; 32 characters or more, at random. Without it visits end with this process.",
        ),
    ] = "",
    app: Annotated[
        str,
        typer.Option(
            metavar="MODULE:OBJECT", help="A mapping of operations to functions that know what became of them."
        ),
    ] = "",
    hashed: Annotated[
        str, typer.Option("--hash", metavar="NAME", help="Ask for a password, print a line for --people, and end.")
    ] = "",
) -> None:
    """Serve a page with what is in progress, stale and unknown, where people settle what nobody else can."""
    with needing("dashboard"):
        from twicesafe.dashboard import Dashboard, hash_password
        from twicesafe.dashboard.people import People
        from twicesafe.dashboard.serving import serve
    if hashed:
        line = hash_password(_password())
        People({hashed: line})
        sys.stdout.write(f"{hashed}:{line}\n")
        return
    if not store:
        raise ConfigurationError("--store names what is to be looked at")
    found = _ADDRESS.fullmatch(listen)
    if found is None or int(found[3]) > 65_535:
        raise ConfigurationError(f"--listen: must be HOST:PORT, as 127.0.0.1:8090 or [::1]:8090, not {listen!r}")
    finders: Any = load(app) if app else {}
    if not isinstance(finders, Mapping):
        raise ConfigurationError(
            f"--app {app} is a {type(finders).__name__}: name a mapping of operations to functions"
        )
    known = {} if people is None else _people(people)
    check_there(store)
    with closing(open_store(store)) as records:
        application = Dashboard(records, people=known, secret=secret, reconcilers=finders, secure=https)
        records.check_schema()
        if not known:
            sys.stderr.write("Nobody may look yet: --people names a file, whose lines --hash NAME writes.\n")
        if not serve(application, found[1] or found[2], int(found[3]), _announce):
            raise typer.Exit(COULD_NOT)


def _announce(where: str) -> None:
    sys.stderr.write(f"The dashboard is at http://{where}/\n")


def _people(file: Path) -> dict[str, str]:
    try:
        # Editors on Windows begin a file with a mark, which would be somebody's name.
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--people {file}: {getattr(error, 'strerror', None) or 'is no text'}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            name, colon, kept = line.strip().partition(":")
            if not colon or name in found:
                raise ConfigurationError(f"--people {file}: line {number} is no NAME:HASH, or names somebody again")
            found[name] = kept
    return found


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    given = getpass.getpass("Password: ", stream=sys.stderr)
    if getpass.getpass("Again: ", stream=sys.stderr) != given:
        raise ConfigurationError("these are two passwords")
    return given
