"""`twicesafe demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from twicesafe.cli.terminal import needing, typer

EPILOG: Final = """
\b
Examples:
  twicesafe demo
  twicesafe demo --port 9000 --file payments.db
  twicesafe demo --lets-expire                     and `twicesafe check --demo safe` in another terminal

\b
Exit status:
  0  stopped by Ctrl-C or SIGTERM
  2  it could not be started; one line on standard error says why
"""


def demo(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; another one where it is taken.")
    ] = 8000,
    file: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Keep the ledger in this SQLite file. By default it is temporary."),
    ] = None,
    lets_expire: Annotated[
        bool, typer.Option("--lets-expire", help="Let POST /demo/expire forget every key, for `twicesafe check`.")
    ] = False,
) -> None:
    """Serve a page with a Pay button, and switches that break the world around it.

    Two lanes, one charge each: the naive endpoint charges twice, the safe one does not. Open the printed address.
    """
    with needing("demo"):
        from twicesafe.demo import serve

        serve(port, file, lets_expire=lets_expire)
