"""`twicesafe doctor`."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import timedelta
from typing import Annotated, Any, Final

from twicesafe.cli.existing import check_there
from twicesafe.cli.terminal import DAMAGE, Console, typer
from twicesafe.doctor import Circumstances, Finding, Severity, diagnose, load
from twicesafe.errors import ConfigurationError
from twicesafe.stores.urls import open_async_store

EPILOG: Final = """
\b
Examples:
  twicesafe doctor shop.main:app                          what is set up wrong, and what to set
  twicesafe doctor shop.main:create_app()                 an application that a function makes
  twicesafe doctor shop.wsgi:application --workers 4      Django or Flask, served by four processes
  twicesafe doctor shop.main:app --horizon 259200         for clients that may come back after three days
  twicesafe doctor shop.main:app --json | jq '.findings[].code'

\b
Exit status:
  0         nothing was found
  1         something was
  2         the application cannot be loaded, or an option is wrong
"""


def doctor(
    app: Annotated[
        str,
        typer.Argument(metavar="MODULE:APP", help="What is served: an ASGI or WSGI application.", show_default=False),
    ],
    store: Annotated[
        str, typer.Option(help="URL of the store to look at, instead of the one that the application uses.")
    ] = "",
    workers: Annotated[
        int, typer.Option(min=0, help="Processes that serve it; what WEB_CONCURRENCY or GUNICORN_CMD_ARGS say, or 1.")
    ] = 0,
    concurrency: Annotated[
        int, typer.Option(min=0, help="Requests that run at once in one process: its threads, or the server's limit.")
    ] = 0,
    horizon: Annotated[
        float, typer.Option(min=1, help="Seconds after which an intent may still be tried again, by any path.")
    ] = 3600.0,
    longest: Annotated[float, typer.Option(min=1, help="Seconds that a request may take.")] = 30.0,
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds that something may wait for a worker, a relay or a person.")
    ] = 900.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Is this application set up right? Scope, order of layers, transactions, pool, clock, retention, what should run.

    The application is imported, as its server does it, and not served. Its scope is asked about a request that was made
    up, its outer layers are given one, and its store is read. Nothing is claimed that stays.
    """
    known = Circumstances(
        workers=workers or workers_of(dict(os.environ)),
        concurrency=concurrency,
        horizon=timedelta(seconds=horizon),
        longest=timedelta(seconds=longest),
        patience=timedelta(seconds=patience),
    )
    if store:
        check_there(store)
    stores = [open_async_store(store)] if store else []
    loaded = _loaded(app)
    found = diagnose(loaded, known, stores)
    if as_json:
        sys.stdout.write(json.dumps({"healthy": not found, "findings": [one.as_dict() for one in found]}) + "\n")
    else:
        _show(found, app)
    if found:
        raise typer.Exit(DAMAGE)


def _loaded(name: str) -> Any:
    try:
        found = load(name)
    except ConfigurationError:
        raise
    except (Exception, SystemExit) as error:
        # One that exits, with 0 say, would have this process say that nothing was found.
        raise ConfigurationError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"{name} is a {type(found).__name__}, which no server can serve")
    return found


def workers_of(environment: dict[str, str]) -> int:
    """How many processes a server started in this environment would have."""
    arguments = environment.get("GUNICORN_CMD_ARGS", "")
    told = re.search(r"(?:^|\s)(?:-w|--workers)[=\s]*(\d+)", arguments)
    number = told[1] if told else environment.get("WEB_CONCURRENCY", "")
    return max(1, int(number)) if number.isdecimal() else 1


_COLOURS: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow"}


def _show(found: list[Finding], app: str) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for one in found:
        kind = one.kind
        console.print(f"[{_COLOURS[kind.severity]}]{kind.severity}[/] {one.code}: ", end="")
        console.print(kind.title, markup=False)
        console.print(f"  where  {one.where}" + (f" ({one.detail})" if one.detail else ""), markup=False)
        console.print(f"  means  {kind.means}", markup=False)
        console.print(f"  do     {kind.do}\n", markup=False)
    if not found:
        console.print(f"Nothing wrong was found with {app}.", style="green", markup=False)
    else:
        errors = sum(one.kind.severity is Severity.ERROR for one in found)
        console.print(f"{_counted(errors, 'error')}, {_counted(len(found) - errors, 'warning')}.", markup=False)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
