"""`python -m benchmarks [NAME ...] [--json] [--write] [--quick] [--seconds N] [--largest N]`"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks import page, results
from benchmarks.measure import PACE, Pace, Row, table
from benchmarks.targets import verdicts

NAMES = (
    "asgi",
    "fastapi",
    "wsgi",
    "http",
    "postgresql",
    "sqlite",
    "mysql",
    "redis",
    "client",
    "outbox",
    "phases",
    "recovery",
    "growth",
)

LONGEST = 640.0
"""Seconds for all of them. What has not begun by then is left out, and said to be."""
EACH = 240.0
"""Seconds for one."""
HURRIED = 40.0
"""Where there is less time than this for each that is left, comparisons get half of theirs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named benchmarks and print; or all, each in a process of its own, and write results and page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measured beside floor and peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; all when none is named")
    parser.add_argument("--json", action="store_true", help="print a list of rows as JSON")
    parser.add_argument("--write", action="store_true", help="put them into the newest results, and the page")
    parser.add_argument("--quick", action="store_true", help="see that it works; the figures mean nothing")
    parser.add_argument(
        "--seconds", type=float, default=PACE.seconds, help="after which a comparison begins no further round"
    )
    parser.add_argument("--largest", type=int, default=PACE.largest, help="records in the largest store of growth")
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    if not chosen.names:
        sys.exit(everything(chosen))
    if chosen.quick and chosen.write:
        parser.error("the figures of a quick run mean nothing, and are not written into others")
    PACE.quick, PACE.largest, PACE.seconds = chosen.quick, chosen.largest, chosen.seconds
    found: list[Row] = []
    for name in chosen.names:
        print(f"{name} ...", file=sys.stderr)
        since = time.monotonic()
        # Several have a process each: some leave settings behind, of which a process has one.
        alone = len(chosen.names) == 1
        some = importlib.import_module(f"benchmarks.{name}").run() if alone else separately(name, chosen, LONGEST)
        found += some
        if chosen.write:
            written(name, some, time.monotonic() - since, chosen)
    if chosen.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"Python {platform.python_version()}, {platform.machine()}\n")
        print(table(found))


def written(name: str, found: list[Row], seconds: float, chosen: Any) -> None:
    """Into the newest results, which are of a whole run, and the page anew."""
    newest = results.newest()
    said = f"{datetime.now(UTC):%Y-%m-%d}"
    for flag in ("largest", "seconds"):
        if getattr(chosen, flag) != getattr(Pace, flag):
            said += f", with --{flag} {getattr(chosen, flag)}"
    results.merged(newest, name, found, seconds, said)
    results.write(newest)
    page.write(newest)


def everything(chosen: Any) -> int:
    """All of them, and what they found written down. 1 where one of them failed, twice: servers have to start, ports to
    be free, and one that was not costs nobody ten minutes."""
    made: results.Results = {
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "quick": chosen.quick,
        "machine": results.machine(),
        "versions": results.versions(),
        "seconds": {},
        "failed": {},
        "apart": {},
        "benchmarks": {},
    }
    patient = chosen.largest > PACE.largest
    began = time.monotonic()
    for number, name in enumerate(NAMES):
        since = time.monotonic()
        for last in (False, True):
            left = 86_400.0 if patient else began + LONGEST - time.monotonic()
            if left < HURRIED * (len(NAMES) - number):
                chosen.seconds = min(chosen.seconds, PACE.seconds / 2)
            try:
                made["benchmarks"][name] = separately(name, chosen, left if patient else min(EACH, left))
                break
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr)
                if last:
                    made["failed"][name] = str(error)
        made["seconds"][name] = round(time.monotonic() - since, 1)
        print(f"{name}: {made['failed'].get(name, 'done')}, {made['seconds'][name]:.0f} s", file=sys.stderr)
    file = results.write(made)
    page.write(made)
    for verdict in verdicts(made["benchmarks"]):
        if not verdict.reached:
            case = f"{verdict.target.benchmark}, {verdict.target.case}"
            print(f"not reached: {case}: {verdict.found:g} {verdict.unit} beside {verdict.beside}", file=sys.stderr)
    print(f"{file.relative_to(page.DOCS.parent)} and {page.PAGE.relative_to(page.DOCS.parent)}")
    return 1 if made["failed"] else 0


def separately(name: str, chosen: Any, seconds: float) -> list[Row]:
    """The rows of one benchmark, from a process with memory and settings of its own. RuntimeError without any."""
    if seconds <= 0:
        raise RuntimeError("there was no time left")
    command = [sys.executable, "-m", "benchmarks", name, "--json"]
    command += ["--largest", str(chosen.largest), "--seconds", str(chosen.seconds)]
    # What it starts dies with it: servers by their guardians, everything else as its group.
    process = subprocess.Popen(
        [*command, *(["--quick"] if chosen.quick else [])], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it took longer than {seconds:.0f} seconds") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        raise RuntimeError(f"it ended with {process.returncode}")
    found: list[Row] = json.loads(said)
    return found


if __name__ == "__main__":
    main()
