"""One storm of the lab, in a process and, where that is allowed, in namespaces of its own.

    python -m twicesafe.storm.chaos.cell JSON

The JSON says which, and one JSON object comes out. Its starter is run.py.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from typing import Any, Final

from twicesafe.errors import TwicesafeError
from twicesafe.storm.chaos.link import wake_loopback
from twicesafe.storm.chaos.matrix import Cell, Operation
from twicesafe.storm.chaos.plan import Trouble
from twicesafe.storm.chaos.weather import LabWeather
from twicesafe.storm.run import Outcome, run
from twicesafe.storm.settings import Settings, Standing

SERVERS: Final = 2
CLIENTS: Final = 40


def settings(cell: Cell, intents: int) -> Settings:
    """The storm's."""
    return Settings(
        store=cell.store,
        intents=intents,
        seed=cell.seed,
        naive=cell.naive,
        servers=SERVERS,
        clients=CLIENTS,
        stepwise=cell.operation is Operation.RESUMABLE,
        keyed=cell.operation is Operation.KEYED,
    )


def told(cell: Cell, outcome: Outcome, weather: LabWeather) -> dict[str, Any]:
    """What the starter wants to know."""
    report = outcome.report
    proofs: dict[str, Any] = {}
    for trouble in cell.troubles:
        if trouble is Trouble.KILLS:
            killed = report.faults["sigkill"]
            restarts = report.faults["database_restart"] + report.faults["database_crash"] + weather.crashes
            figures = {"servers killed": killed, "database restarts and crashes": restarts}
            for kind in ("sigkill_worker", "sigkill_provider"):
                if report.faults.get(kind):
                    figures[f"{kind.removeprefix('sigkill_')}s killed"] = report.faults[kind]
            unfelt = (not killed) + (not restarts)
            proofs[trouble] = {"blows": killed + restarts, "unfelt": unfelt, "figures": figures}
        else:
            met = weather.troubles[trouble]
            proofs[trouble] = {"blows": met.blows, "unfelt": met.unfelt, "figures": dict(met.figures)}
    if weather.revivals:
        proofs.setdefault(Trouble.DISK_FULL, {"blows": 0, "unfelt": 0, "figures": {}})
        proofs[Trouble.DISK_FULL]["figures"]["database gone down and started again"] = weather.revivals
    return {
        "report": report.as_dict(),
        "clean": outcome.clean and not report.unknown,
        "held": weather.held,
        "failures": weather.heard_of.failures,
        "proofs": proofs,
        "remarks": list(outcome.remarks),
    }


async def _run(cell: Cell, *, isolated: bool) -> dict[str, Any]:
    weather = LabWeather(cell, isolated=isolated)
    wanted = settings(cell, len(weather.plan_of_storm.intents))
    outcome = await run(wanted, Standing(total=wanted.intents), weather)
    return told(cell, outcome, weather)


async def _until_told_to_stop(cell: Cell, *, isolated: bool) -> dict[str, Any] | None:
    running = asyncio.create_task(_run(cell, isolated=isolated))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.cancel)
    with suppress(asyncio.CancelledError):
        return await running
    return None


def main() -> None:
    """Exit status 0 where there is a report."""
    asked = json.loads(sys.argv[1])
    try:
        if asked["isolated"]:
            wake_loopback()
        found = asyncio.run(_until_told_to_stop(Cell.of(asked["cell"]), isolated=asked["isolated"]))
    except TwicesafeError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    if found is None:
        sys.exit(143)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
