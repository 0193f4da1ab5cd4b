"""The command line. Whatever it does, a module below does; here it is asked for, shown, and turned into an exit status.

0  done; for the storm: one effect per intent, nothing lost, nothing stuck; for a check: nothing it tried failed
1  the storm found duplicates, losses or stuck keys; a check failed
2  it could not be done: a wrong option, a database out of reach, a missing package
130, 143  interrupted by SIGINT or SIGTERM; whatever was started has been ended
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

from twicesafe import __version__
from twicesafe.cli import (
    check,
    dashboard,
    demo,
    doctor,
    gateway,
    intents,
    keys,
    outbox,
    reap,
    schema,
    stores,
    storm,
    worker,
)
from twicesafe.cli.terminal import COULD_NOT, complain, typer
from twicesafe.errors import TwicesafeError

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
  twicesafe reap --store sqlite:///shop.db --once    take away what has expired
  twicesafe keys list --store sqlite:///shop.db      unknown outcomes, and what people did about them
  twicesafe outbox list --store sqlite:///shop.db    messages that could not be delivered
  twicesafe dashboard --store sqlite:///shop.db --people people
                                                     the same on a page that is live, behind a sign-in
  twicesafe worker --app shop.work:once              go on with operations that broke off
  twicesafe intents resume var/intents.db            send again what a client that died may have sent
  twicesafe gateway --upstream http://127.0.0.1:3000 --store sqlite:///shop.db --scope-header X-User-Id
                                                     safe retries in front of any service
  twicesafe doctor shop.main:app                     what is set up wrong in an application of yours
  twicesafe check target.toml                        any API, in any language: are its retries safe?
  twicesafe stores check sqlite:///shop.db           every promise of a store, put to the test on yours
""",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=demo.EPILOG, short_help="Serve a page with a Pay button, and break the world.")(demo.demo)
app.command(epilog=storm.EPILOG, short_help="Break everything, and count the effects.")(storm.storm)
app.command(epilog=reap.EPILOG, short_help="Take away what has expired, and end what was left behind.")(reap.reap)
app.command(epilog=worker.EPILOG, short_help="Go on with what broke off, settle what is unknown.")(worker.worker)
app.command(epilog=check.EPILOG, short_help="Try on a running API whether retries are safe.")(check.check)
app.command(epilog=doctor.EPILOG, short_help="What is set up wrong in an application, and what to set.")(doctor.doctor)
app.command(epilog=dashboard.EPILOG, short_help="A page for people who settle what is unknown.")(dashboard.dashboard)
app.command(epilog=gateway.EPILOG, short_help="Safe retries in front of a service in any language.")(gateway.gateway)
app.add_typer(intents.intents, name="intents")
app.add_typer(keys.keys, name="keys")
app.add_typer(outbox.outbox, name="outbox")
app.add_typer(schema.schema, name="schema")
app.add_typer(stores.stores, name="stores")


def main() -> None:
    """The `twicesafe` program."""
    if isinstance(sys.stdout, TextIOWrapper):
        # A pipe may have an encoding that lacks what stands in an id: it is shown as stderr shows it.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except TwicesafeError as error:
        complain(error)
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
