"""`twicesafe storm`."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

from twicesafe.cli.terminal import (
    DAMAGE,
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
from twicesafe.storm.plan import KILL_POINTS
from twicesafe.storm.settings import Settings, Standing

if TYPE_CHECKING:
    from twicesafe.storm.run import Outcome

EPILOG: Final = """

\b
Examples:
  twicesafe storm                                    300 intents on a temporary SQLite file
  twicesafe storm --seed 7 --naive                   without twicesafe: see the damage
  twicesafe storm --store postgresql --intents 2000  on a private PostgreSQL server
  twicesafe storm --store mysql --intents 2000       on a private MariaDB server
  twicesafe storm --store redis --intents 2000       on a private Redis server, with a ledger that is called
  twicesafe storm --store postgresql://app@host/db   on your server, which is not restarted
  twicesafe storm --operation resumable --provider-faults --store postgresql --intents 1000
                                                     a provider is called and breaks as well; workers go on
  twicesafe storm --with-outbox --store postgresql --intents 1000
                                                     each payment leaves an event, which relays bring to a consumer
  twicesafe storm --json | jq .faults                for machines

The seed decides what breaks, and is printed; when exactly it breaks is the machine's affair.

\b
Exit status:
  0         one effect per intent, nothing lost, nothing stuck; with a provider nothing left unknown either, and
            with an outbox one event at the consumer
  1         duplicates, losses or stuck keys, as there will be with --naive
  2         it could not be run; one line on standard error says why
  130, 143  interrupted; every process it started has been ended
"""


class Kind(StrEnum):
    """What a payment is."""

    PAYMENT = "payment"
    RESUMABLE = "resumable"


def storm(
    store: Annotated[
        str,
        typer.Option(
            help="`sqlite`, `postgresql`, `mysql` or `redis` for a temporary one, or a URL: sqlite:///shop.db, "
            "postgresql://user:password@host/database, mysql://user:password@host/database, redis://host:port/0."
        ),
    ] = "sqlite",
    intents: Annotated[int, typer.Option(min=1, help="How many payments are wanted.")] = 300,
    seed: Annotated[int | None, typer.Option(help="Repeat the faults of an earlier storm. Random by default.")] = None,
    naive: Annotated[bool, typer.Option("--naive", help="The same faults, without twicesafe.")] = False,
    operation: Annotated[
        Kind, typer.Option(help="`payment`: one transaction. `resumable`: three, and two calls to a payment provider.")
    ] = Kind.PAYMENT,
    provider_faults: Annotated[
        bool, typer.Option("--provider-faults", help="The provider breaks too. Needs `--operation resumable`.")
    ] = False,
    with_outbox: Annotated[
        bool, typer.Option("--with-outbox", help="Each payment adds an event to the outbox. Not on Redis.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and no progress.")] = False,
    servers: Annotated[int, typer.Option(min=1, max=64, help="Server processes.")] = 3,
    clients: Annotated[int, typer.Option(min=1, max=2000, help="Clients that pay at the same time.")] = 200,
) -> None:
    """Break everything that can break, and count whether each payment happened exactly once.

    Starts real server processes on one store and hundreds of clients. On the way between them answers are dropped after
    the commit, connections reset, requests sent twice at once and answers delayed beyond the time-out; servers are
    killed with SIGKILL, some right after the claim, the effect or the commit; the database is restarted and crashed.

    With `--operation resumable` a payment takes several steps, between which it calls a payment provider twice: a
    process with a ledger of its own, which remembers keys for 10 s only. Workers go on with what breaks off and ask the
    provider about what is unknown; they and the provider are killed as well. With `--provider-faults` it also drops
    answers after the charge, fails before and after it, is slow, refuses, resets, and kills itself.

    With `--with-outbox` each payment's transaction also adds an event to the outbox, which two relays bring by webhooks
    to a consumer, a process with a database and an inbox of its own. Relays and the consumer are killed as well, some
    right after an event was acknowledged, handled or committed; the consumer fails, and its answers get lost.

    \b
    effects     rows in the ledger; with a provider, its charges
    duplicates  rows beyond one per intent, in any ledger, the consumer's among them
    lost        intents without a row in some ledger, or whose client was told of a payment that is not there
    unknown     intents whose client never learned the outcome, or that nobody has settled
    stuck       keys that still answer "in progress" or "unknown" when all is calm again, and events not delivered
    """
    with needing("storm"):
        from twicesafe.storm.run import run
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    settings = Settings(
        store=store, intents=intents, seed=chosen, naive=naive, servers=servers, clients=clients,
        stepwise=operation is Kind.RESUMABLE, provider_faults=provider_faults,
        with_outbox=with_outbox,
    )  # fmt: skip
    standing = Standing(total=intents)
    aside = Console(stderr=True, highlight=False, soft_wrap=True)
    if as_json:
        outcome = until_interrupted(run(settings, standing))
    else:
        aside.print(f"Seed {chosen}: {intents} intents, {clients} clients, {servers} servers.")
        outcome = until_interrupted(run(settings, standing), _show_progress(aside, standing))
    for remark in outcome.remarks:
        aside.print(f"Note: {remark}", markup=False)
    report = outcome.report
    if as_json:
        sys.stdout.write(json.dumps(report.as_dict()) + "\n")
    else:
        _show(outcome, naive=naive)
    if not outcome.clean:
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
    "sigkill_before_send": "  before a call",
    "sigkill_after_send": "  after a call",
    "sigkill_worker": "SIGKILL of a worker",
    "sigkill_provider": "SIGKILL of the provider",
    "sigkill_consumer": "SIGKILL of the consumer",
    "sigkill_relay": "SIGKILL of a relay",
    "sigkill_after_delivery": "  after a delivery",
}


def _show(outcome: Outcome, *, naive: bool) -> None:
    """The table, and what it comes to."""
    report = outcome.report
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
    if outcome.clean:
        console.print("[green]One effect per intent.[/]")
    else:
        without = " without twicesafe" if naive else ""
        console.print(
            f"[red]{report.intents} intents, {report.effects} effects{without}: "
            f"{report.duplicates} duplicates, {report.lost} lost, {report.unknown} unknown, {report.stuck} stuck.[/]"
        )
