"""`twicesafe stores`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated, Final

from twicesafe.checking import KEYS, Checked, Standing, check_stores
from twicesafe.cli.terminal import (
    DAMAGE,
    PLAIN,
    BarColumn,
    Console,
    MofNCompleteColumn,
    Progress,
    Table,
    TextColumn,
    needing,
    typer,
    until_interrupted,
)
from twicesafe.errors import ConfigurationError
from twicesafe.testing import CHECKS, Outcome

stores = typer.Typer(
    help="Put stores to the test.",
    short_help="Put stores to the test.",
    no_args_is_help=True,
)

EPILOG: Final = """
\b
Examples:
  twicesafe stores check sqlite:///shop.db
  twicesafe stores check postgresql://app:secret@localhost/shop
  twicesafe stores check redis://localhost:6379 memory:    several at once
  twicesafe stores check "dynamodb://eu-central-1/records?endpoint=http://127.0.0.1:8000"
  twicesafe stores check sqlite:///shop.db --json | jq .passed

\b
Exit status:
  0         every store kept every promise that it makes
  1         a check failed; the reasons stand below the table
  2         it could not be run; one line on standard error says why
  130, 143  interrupted; what was made for it has been removed
"""


@stores.callback()
def _group() -> None:
    """Put stores to the test."""


@stores.command("check", epilog=EPILOG, short_help="Every promise of a store, put to the test on your own server.")
def check(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Addresses of stores.", show_default=False)],
    only: Annotated[
        list[str] | None, typer.Option("--check", help="Only the check of this name; may be given several times.")
    ] = None,
    keys: Annotated[int, typer.Option(min=1, help="Keys that 16 rivals race for. An emulator wants fewer.")] = KEYS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and no progress.")] = False,
) -> None:
    """Put every promise of a store to the test, on your own server: rivals, take-overs, late owners, lost replies.

    It works in a place that it makes and removes, and touches no record that was there before:

    \b
    sqlite        files in a new folder beside the file
    postgresql    a new schema
    mysql         a new database
    redis         keys under a new prefix
    dynamodb      two new tables

    The account needs the right to make these. A busy server is no place for it: some checks let many rivals loose.
    """
    unknown = set(only or ()) - {one.name for one in CHECKS}
    if unknown:
        raise ConfigurationError(f"there is no check named {', '.join(sorted(unknown))}")
    standing = Standing()
    work = check_stores(urls, standing, only or (), keys=keys)
    aside = Console(stderr=True, highlight=False, soft_wrap=True)
    with needing("cli"):
        checked = until_interrupted(work) if as_json else until_interrupted(work, _show_progress(aside, standing))
    for remark in checked.remarks:
        aside.print(f"Note: {remark}", markup=False)
    if as_json:
        sys.stdout.write(json.dumps(checked.as_dict()) + "\n")
    else:
        _show(checked)
    if not checked.passed:
        raise typer.Exit(DAMAGE)


async def _show_progress(aside: Console, standing: Standing) -> None:
    """A bar, kept up to date until cancelled."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]} failed")
    )  # fmt: skip
    with Progress(*columns, console=aside) as bar:
        task = bar.add_task("preparing", total=None, failed=0)
        while True:
            bar.update(
                task,
                description=standing.store,
                completed=standing.done,
                total=standing.total or None,
                failed=standing.failed,
            )
            await asyncio.sleep(0.2)


_MARKS: Final = {
    Outcome.PASSED: "[green]ok[/]",
    Outcome.FAILED: "[bold red]FAILED[/]",
    Outcome.NOT_APPLICABLE: "[dim]-[/]",
}


def _show(checked: Checked) -> None:
    """The table of checks and stores, and the reasons of whatever is not ok."""
    console = Console(highlight=False)
    table = Table(box=PLAIN)
    table.add_column("check", no_wrap=True)
    for store in checked.results:
        table.add_column(store.replace(", ", "\n"), justify="center", no_wrap=True)
    for row in zip(*checked.results.values(), strict=True):
        table.add_row(row[0].name, *[_MARKS[result.outcome] for result in row])
    console.print(table)
    missing: dict[str, str] = {}
    for store, column in checked.results.items():
        for result in column:
            if result.outcome is Outcome.FAILED:
                console.print(f"[bold red]FAILED[/] {store}: {result.name}: ", end="")
                console.print(result.reason, markup=False, soft_wrap=True)
            elif result.outcome is Outcome.NOT_APPLICABLE:
                missing[f"- {store}: {result.reason}"] = store
    for line in missing:
        console.print(line, markup=False, soft_wrap=True)
    for store, column in checked.results.items():
        counted = {outcome: sum(1 for result in column if result.outcome is outcome) for outcome in Outcome}
        told = f"{store}: " + ", ".join(
            [f"{number} {outcome.value.lower()}" for outcome, number in counted.items() if number]
        )
        console.print(told, style="green" if not counted[Outcome.FAILED] else "bold red", markup=False)
