"""`python -m twicesafe.storm.chaos`. See --help."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import signal
import sys
import time
from contextlib import suppress
from typing import Final

from twicesafe.errors import TwicesafeError
from twicesafe.storm.chaos.matrix import STORES, Cell, Operation, cells, control
from twicesafe.storm.chaos.plan import Trouble
from twicesafe.storm.chaos.report import as_dict, line, proofs, table
from twicesafe.storm.chaos.run import Ran, isolation, run

_PROG: Final = "python -m twicesafe.storm.chaos"


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=_PROG,
        description="Storms in which processes die, networks are cut, disks fill up and get slow, and clocks jump: "
        "each trouble by itself on each store, and all of them together on each operation of each store.",
        epilog="Exit status: 0, each intent had one effect, each trouble struck, and the storm without twicesafe did "
        "damage; 1, it was not so; 2, it could not be run; 130 and 143, interrupted.",
    )
    parser.add_argument("--seed", type=int, help="repeat a run's storms (default: random, and printed)")
    parser.add_argument("--stores", default=",".join(STORES), help="default: %(default)s")
    parser.add_argument("--operations", default=",".join(Operation), help="default: %(default)s")
    parser.add_argument("--troubles", default=",".join(Trouble), help="default: %(default)s")
    parser.add_argument(
        "--every", action="store_true", help="each trouble in every operation of a store, not in one that is drawn"
    )
    parser.add_argument("--at-once", type=int, default=2, help="storms at the same time (default: %(default)s)")
    parser.add_argument("--naive", action="store_true", help="only the storm without twicesafe, which has to do damage")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    return parser


def wanted(parser: argparse.ArgumentParser, given: argparse.Namespace) -> list[Cell]:
    """The storms that are asked for. It ends the program where that makes no sense."""
    stores = _some(parser, "--stores", given.stores, STORES)
    operations = [Operation(name) for name in _some(parser, "--operations", given.operations, tuple(Operation))]
    troubles = [Trouble(name) for name in _some(parser, "--troubles", given.troubles, tuple(Trouble))]
    if given.at_once < 1:
        parser.error("--at-once must be 1 or more")
    if given.naive:
        return [control(given.seed)]
    found = cells(given.seed, stores, operations, troubles, every=given.every)
    if not found:
        parser.error("no store among these has such an operation, or can meet such a trouble")
    return [*found, control(given.seed)]


def _some(parser: argparse.ArgumentParser, option: str, given: str, known: tuple[str, ...]) -> list[str]:
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in known:
            parser.error(f"{option}: {name!r} is none of {', '.join(known)}")
    return names


def main() -> None:
    """Exit status 0 only where all holds."""
    parser = options()
    given = parser.parse_args()
    if given.seed is None:
        given.seed = secrets.randbelow(1_000_000)
    asked = wanted(parser, given)
    isolated = isolation()
    sys.stderr.write(f"Seed {given.seed}: {len(asked)} storms, {given.at_once} at a time.\n")
    if not isolated:
        sys.stderr.write("No networks of their own can be made here: the network is cut by a relay on 127.0.0.1.\n")
    began = time.monotonic()
    received: list[signal.Signals] = []
    try:
        ran = asyncio.run(_until_interrupted(asked, given, received, isolated=isolated))
    except TwicesafeError as error:
        parser.exit(2, f"{_PROG}: {error}\n")
    if ran is None:
        sys.exit(128 + received[0])
    report = as_dict(given.seed, ran, time.monotonic() - began)
    if given.json:
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        sys.stdout.write(f"{table(ran)}\n\n{proofs(ran)}\n\n")
        for one in ran:
            if not one.as_wanted:
                for remark in one.told.get("remarks", []):
                    sys.stdout.write(f"{one.cell.store}, {one.cell.operation}, {one.cell.trouble}: {remark}\n")
        held = "One effect per intent, and every trouble struck." if report["clean"] else "It does not hold."
        sys.stdout.write(f"Seed {given.seed}, {report['seconds']:.0f} s. {held}\n")
    sys.exit(0 if report["clean"] else 1)


async def _until_interrupted(
    asked: list[Cell], given: argparse.Namespace, received: list[signal.Signals], *, isolated: bool
) -> list[Ran] | None:
    """SIGINT and SIGTERM end it in good order; only the first one does."""

    def progress(one: Ran) -> None:
        if not given.json:
            sys.stderr.write("  ".join(line(one)).rstrip() + "\n")

    running = asyncio.create_task(run(asked, given.at_once, isolated=isolated, ran=progress))

    def stop(number: signal.Signals) -> None:
        if not received:
            received.append(number)
            running.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    with suppress(asyncio.CancelledError):
        return await running
    return None


if __name__ == "__main__":
    main()
