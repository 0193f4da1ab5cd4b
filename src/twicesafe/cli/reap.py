"""`twicesafe reap`."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing
from datetime import timedelta
from typing import Annotated, Final

from twicesafe.cli.existing import check_there
from twicesafe.cli.terminal import typer, until_interrupted
from twicesafe.observe import Event, told_of
from twicesafe.reaper import AsyncReaper, Reaped
from twicesafe.stores.connecting import without_password
from twicesafe.stores.urls import open_async_store

EPILOG: Final = """
\b
Examples:
  twicesafe reap --store postgresql://app:secret@localhost/shop          round after round, until stopped
  twicesafe reap --store sqlite:///shop.db --once                        from a timer of yours
  twicesafe reap --store postgresql://app@host/shop?daily_bodies=1       daily partitions are made and dropped too
  twicesafe reap --store sqlite:///shop.db --once --json | jq .purged    for machines

\b
Exit status:
  0         one round is done
  2         the store is out of reach, or not as this release needs it
  130, 143  stopped by SIGINT or SIGTERM, within a batch
"""


def reap(
    store: Annotated[
        str, typer.Option(help="URL of a store: sqlite:///FILE, postgresql://USER:PASSWORD@HOST/DATABASE.")
    ],
    once: Annotated[bool, typer.Option("--once", help="One round, then end.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Rows that are deleted in one statement, at most.")] = 100,
    batch_time: Annotated[
        float, typer.Option(min=0.001, help="Seconds that a statement may take before the next one is made smaller.")
    ] = 0.02,
    pause: Annotated[float, typer.Option(min=0.0, help="Seconds of rest after each statement, at least.")] = 0.02,
    every: Annotated[float, typer.Option(min=0.0, help="Seconds from the end of a round to the next one.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print one JSON object.")] = False,
) -> None:
    """Take away expired records, and end claims whose owner is gone.

    Nothing waits for it: leases and retentions end by themselves. It gives back space, and finds claims that nobody
    asks for again. Any number of them may run at once, beside any number of servers; one is enough.
    """
    check_there(store)

    async def work() -> Reaped | None:
        async with aclosing(open_async_store(store)) as records:
            await records.check_schema()
            reaper = AsyncReaper(
                records,
                batch=batch,
                batch_time=timedelta(seconds=batch_time),
                pause=timedelta(seconds=pause),
                every=timedelta(seconds=every),
                observer=_tell,
            )
            if once:
                return await reaper.run_once()
            sys.stderr.write(f"Reaping {without_password(store)} every {every:g} s.\n")
            await reaper.run()
            return None

    reaped = until_interrupted(work())
    if reaped is None:
        return
    if as_json:
        sys.stdout.write(json.dumps(reaped._asdict()) + "\n")
    else:
        stale = "this store does not look for stale claims"
        if reaped.settled is not None:
            stale = f"{reaped.settled} stale claims ended"
        sys.stdout.write(f"{reaped.purged} expired records and bodies purged; {stale}.\n")


def _tell(event: Event) -> None:
    why = "" if event.error is None else f": {told_of(event.error)}"
    sys.stderr.write(f"twicesafe.{event.name}{why}\n")
