"""The command line. Whatever it does, a module below does; here it is asked for, shown, and turned into an exit status.

0  done; for the storm: one effect per intent, nothing lost, nothing stuck
1  the storm ran, and found duplicates, losses or stuck keys
2  it could not be done: a wrong option, a database out of reach, a missing package
130, 143  interrupted by SIGINT or SIGTERM; whatever was started has been ended
"""

# ruff: noqa: FBT001, FBT002 - a parameter is how typer spells an option

from __future__ import annotations

import asyncio
import json
import re
import secrets
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from twicesafe import __version__
from twicesafe.errors import ConfigurationError, TwicesafeError
from twicesafe.stores.postgresql import without_password
from twicesafe.stores.sql.schema import schema_text, versions
from twicesafe.stores.sql.statements import Dialect
from twicesafe.stores.urls import open_async_store, open_store
from twicesafe.storm.census import Report
from twicesafe.storm.plan import KILL_POINTS
from twicesafe.storm.settings import Settings, Standing

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Table
except ModuleNotFoundError as _missing:
    raise SystemExit(f"twicesafe: the package {_missing.name} is missing: pip install 'twicesafe[cli]'") from None

T = TypeVar("T")

COULD_NOT: Final = 2
DAMAGE: Final = 1

_DEMO_EPILOG: Final = """
\b
Examples:
  twicesafe demo
  twicesafe demo --port 9000 --file payments.db

\b
Exit status:
  0  stopped by Ctrl-C or SIGTERM
  2  it could not be started; one line on standard error says why
"""

app = typer.Typer(
    help="Send it twice. It happens once.",
    epilog="""
\b
Examples:
  twicesafe demo                                     a page with a Pay button, and the world breaking
  twicesafe storm --intents 300 --seed 7             break everything, count the effects
  twicesafe storm --intents 300 --seed 7 --naive     the same without twicesafe
  twicesafe schema print --store postgresql          the tables as a script
  twicesafe schema apply --store sqlite:///shop.db   make the tables
""",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
schema = typer.Typer(
    help="Make or print the tables that twicesafe keeps its records in.",
    short_help="Make or print the tables.",
    no_args_is_help=True,
)
app.add_typer(schema, name="schema")


def main() -> None:
    """The `twicesafe` program."""
    try:
        app()
    except TwicesafeError as error:
        _complain(error)
        raise SystemExit(COULD_NOT) from None


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"twicesafe {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Send it twice. It happens once."""


# --- demo ------------------------------------------------------------------------------------------------------------


@app.command(epilog=_DEMO_EPILOG, short_help="Serve a page with a Pay button, and break the world.")
def demo(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; another one where it is taken.")
    ] = 8000,
    file: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Keep the ledger in this SQLite file. By default it is temporary."),
    ] = None,
) -> None:
    """Serve a page with a Pay button, and switches that break the world around it.

    Two lanes, one charge each: the naive endpoint charges twice, the safe one does not. Open the printed address.
    """
    with _needing("demo"):
        from twicesafe.demo import serve

        serve(port, file)


# --- storm -----------------------------------------------------------------------------------------------------------

_STORM_EPILOG: Final = """

\b
Examples:
  twicesafe storm                                    300 intents on a temporary SQLite file
  twicesafe storm --seed 7 --naive                   without twicesafe: see the damage
  twicesafe storm --store postgresql --intents 2000  on a private PostgreSQL server
  twicesafe storm --store postgresql://app@host/db   on your server, which is not restarted
  twicesafe storm --json | jq .faults                for machines

The seed decides what breaks, and is printed; when exactly it breaks is the machine's affair.

\b
Exit status:
  0         one effect per intent, nothing lost, nothing stuck
  1         duplicates, losses or stuck keys, as there will be with --naive
  2         it could not be run; one line on standard error says why
  130, 143  interrupted; every process it started has been ended
"""


@app.command(epilog=_STORM_EPILOG, short_help="Break everything, and count the effects.")
def storm(
    store: Annotated[
        str,
        typer.Option(
            help="`sqlite` or `postgresql` for a temporary one, or a URL: sqlite:///shop.db, "
            "postgresql://user:password@host/database."
        ),
    ] = "sqlite",
    intents: Annotated[int, typer.Option(min=1, help="How many payments are wanted.")] = 300,
    seed: Annotated[int | None, typer.Option(help="Repeat the faults of an earlier storm. Random by default.")] = None,
    naive: Annotated[bool, typer.Option("--naive", help="The same faults, without twicesafe.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and no progress.")] = False,
    servers: Annotated[int, typer.Option(min=1, max=64, help="Server processes.")] = 3,
    clients: Annotated[int, typer.Option(min=1, max=2000, help="Clients that pay at the same time.")] = 200,
) -> None:
    """Break everything that can break, and count whether each payment happened exactly once.

    Starts real server processes on one store and hundreds of clients. On the way between them answers are dropped after
    the commit, connections reset, requests sent twice at once and answers delayed beyond the time-out; servers are
    killed with SIGKILL, some right after the claim, the effect or the commit; the database is restarted and crashed.

    \b
    effects     rows in the ledger
    duplicates  rows beyond one per intent
    lost        intents without a row, or whose client was told of a payment that is not there
    unknown     intents whose client never learned the outcome
    stuck       keys that still answer "in progress" or "unknown" when all is calm again
    """
    with _needing("storm"):
        from twicesafe.storm.run import run
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    settings = Settings(store=store, intents=intents, seed=chosen, naive=naive, servers=servers, clients=clients)
    standing = Standing(total=intents)
    aside = Console(stderr=True, highlight=False, soft_wrap=True)
    if as_json:
        outcome = _until_interrupted(run(settings, standing))
    else:
        aside.print(f"Seed {chosen}: {intents} intents, {clients} clients, {servers} servers.")
        outcome = _until_interrupted(run(settings, standing), _show_progress(aside, standing))
    for remark in outcome.remarks:
        aside.print(f"Note: {remark}", markup=False)
    report = outcome.report
    if as_json:
        sys.stdout.write(json.dumps(report.as_dict()) + "\n")
    else:
        _show(report, naive=naive)
    if not report.clean:
        raise typer.Exit(DAMAGE)


async def _show_progress(aside: Console, standing: Standing) -> None:
    """A bar, kept up to date until cancelled."""
    columns = (
        TextColumn("{task.description:<11}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[seconds]} s, {task.fields[faults]} faults, {task.fields[kills]} SIGKILLs"),
    )  # fmt: skip
    with Progress(*columns, console=aside) as bar:
        task = bar.add_task("starting", total=standing.total, seconds=0, faults=0, kills=0)
        began = time.monotonic()
        while True:
            counted = standing.faults()
            bar.update(
                task,
                description=standing.phase,
                completed=standing.done,
                total=standing.total,
                seconds=round(time.monotonic() - began),
                faults=sum(count for kind, count in counted.items() if kind not in KILL_POINTS),
                kills=counted["sigkill"],
            )
            await asyncio.sleep(0.2)


_FAULT_NAMES: Final = {
    "sigkill": "SIGKILL",
    "sigkill_after_claim": "  after the claim",
    "sigkill_after_effect": "  after the effect",
    "sigkill_after_commit": "  after the commit",
}


def _show(report: Report, *, naive: bool) -> None:
    """The table, and what it comes to."""
    console = Console(highlight=False)
    console.print(f"{report.store}, seed {report.seed}, {report.seconds:.1f} s", soft_wrap=True, markup=False)
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("intents", str(report.intents))
    table.add_row("attempts", str(report.attempts), end_section=True)
    for kind, count in report.faults.items():
        table.add_row(_FAULT_NAMES.get(kind, kind.replace("_", " ")), str(count))
    table.add_section()
    for name in ("effects", "duplicates", "lost", "unknown", "stuck"):
        count = getattr(report, name)
        bad = name != "effects" and count
        table.add_row(name, str(count), style="bold red" if bad else "bold")
    console.print(table)
    if report.clean:
        console.print("[green]One effect per intent.[/]")
    else:
        without = " without twicesafe" if naive else ""
        console.print(
            f"[red]{report.intents} intents, {report.effects} effects{without}: "
            f"{report.duplicates} duplicates, {report.lost} lost, {report.stuck} stuck.[/]"
        )


# --- schema ----------------------------------------------------------------------------------------------------------

_SCHEMA_EPILOG: Final = """
\b
Examples:
  twicesafe schema print --store postgresql > twicesafe.sql
  twicesafe schema apply --store sqlite:///shop.db
  twicesafe schema apply --store postgresql://app:secret@localhost/shop

\b
Exit status:
  0  the tables are as this release needs them
  2  they could not be made, or a newer release made them
"""


@schema.command("apply", epilog=_SCHEMA_EPILOG, short_help="Make or upgrade the tables.")
def schema_apply(
    store: Annotated[str, typer.Option(help="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make or upgrade the tables. Running it again changes nothing; running it everywhere at once is safe."""
    dialect = _dialect(store)
    if dialect is Dialect.POSTGRESQL and find_spec("asyncpg") is not None:
        # It says at once where nobody answers; psycopg's pool goes on trying.
        _until_interrupted(_apply_by_asyncio(store))
    else:
        with closing(open_store(store)) as records:
            records.apply_schema()
            records.check_schema()
    name, version = without_password(store), versions(dialect)[-1].number
    if as_json:
        sys.stdout.write(json.dumps({"store": name, "dialect": dialect, "version": version}) + "\n")
    else:
        sys.stdout.write(f"The tables in {name} are of version {version}, as this release needs them.\n")


async def _apply_by_asyncio(store: str) -> None:
    async with aclosing(open_async_store(store)) as records:
        await records.apply_schema()
        # What a newer release made was left alone, and is of no use here.
        await records.check_schema()


@schema.command("print", epilog=_SCHEMA_EPILOG, short_help="Print the tables as a script.")
def schema_print(
    store: Annotated[str, typer.Option(help="`sqlite`, `postgresql`, or a URL of either; nothing is connected to.")],
) -> None:
    """Print the tables as a script, for those who apply it by other means."""
    sys.stdout.write(schema_text(_dialect(store)))


def _dialect(store: str) -> Dialect:
    """By the name or the scheme of a URL."""
    scheme = store.partition(":")[0]
    try:
        return Dialect("postgresql" if scheme == "postgres" else scheme)
    except ValueError:
        raise ConfigurationError(
            f"tables are kept in {' or '.join(Dialect)}, not in {scheme!r}: name one of them, or a URL of one"
        ) from None


# --- how -------------------------------------------------------------------------------------------------------------


@contextmanager
def _needing(extra: str) -> Iterator[None]:
    """Say which extra to install where a package is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"the package {missing.name} is missing: pip install 'twicesafe[{extra}]'"
        ) from missing


def _until_interrupted(work: Coroutine[Any, Any, T], *beside: Coroutine[Any, Any, None]) -> T:
    """Run `work` to its end, and what is `beside` it for as long. SIGINT and SIGTERM cancel it and end the program.

    Only the first signal does: what `work` does to end its servers is short, and must not be cut short.
    """
    received: list[signal.Signals] = []

    async def run() -> T:
        loop = asyncio.get_running_loop()
        main_task = asyncio.create_task(work)
        others = [asyncio.create_task(other) for other in beside]

        def stop(number: signal.Signals) -> None:
            if not received:
                received.append(number)
                main_task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            return await main_task
        finally:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise typer.Exit(128 + received[0]) from None


_PASSWORD: Final = re.compile(r"(?<=://)([^:/\s]*):\S*@")


def _complain(error: TwicesafeError) -> None:
    """One line, without the password of any URL."""
    line = _PASSWORD.sub(r"\1:***@", " ".join(str(error).split()))
    sys.stderr.write(f"twicesafe: {line}\n")
