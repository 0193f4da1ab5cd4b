"""How fast two workers, each a process of its own, end operations that broke off; beside dbos and as many workflows.

Each operation has three steps, of which one was taken before the process died. A step writes a row of the application's
own and what tells that it was taken in one transaction: phases here, a datasource's transactions in dbos. All is on one
private server with fsync on. The figure is operations per second, from the moment the workers are let go until the last
operation is done; then every row is there once, or the run counts for nothing.

dbos is set up as its documentation has it: asynchronous workflows, an asynchronous datasource with READ COMMITTED, one
executor id for each of the two processes, which are started again under the ids they died with and recover at their
launch. Its pools have as many connections as ours. A run is cut after PATIENCE; the rate is then that of what was done.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import asyncpg

from benchmarks.measure import PACE, Row, row
from twicesafe.storm.postgresql import PrivatePostgreSQL

COUNT = int(os.environ.get("BENCH_STRANDED", "1500"))
WORKERS = 2
PATIENCE = 30.0
"""Seconds, for recovery."""
SUBJECTS = ("twicesafe", "dbos") if find_spec("dbos") else ("twicesafe",)

EFFECTS = "CREATE TABLE effects (id bigserial PRIMARY KEY, operation text NOT NULL, step integer NOT NULL)"
LATER = {
    "twicesafe": "UPDATE twicesafe_records SET lease_until = created_at",
    "dbos": "SELECT 1",
}
"""Lets the time pass that a recovery has to wait: a lease, here."""
DONE = "SELECT count(*) FROM effects WHERE step = 2"
WRONG = "SELECT count(*) FROM (SELECT FROM effects GROUP BY operation, step HAVING count(*) <> 1) AS twice"


class Process:
    """A stranding process or a worker; it says "ready", is told to go on, and says how much it did."""

    def __init__(self, subject: str, role: str, url: str, number: int, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.recovery_{subject}", role, url, str(number), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def said(self) -> Any:
        """Its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def go(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """As a crash does."""
        self._process.kill()
        self._process.wait()


def ready() -> None:
    """Of a process: say so, and wait to be let go."""
    say("ready")
    sys.stdin.readline()


def say(what: object) -> None:
    """A line to whoever started this process."""
    print(json.dumps(what), flush=True)


async def recovered(subject: str, url: str, count: int) -> tuple[int, float]:
    """How many operations two workers ended, and in how many seconds."""
    strands = [Process(subject, "strand", url, number, count // WORKERS) for number in range(WORKERS)]
    for strand in strands:
        assert strand.said() == "ready"
        strand.go()
        assert strand.said() == "stranded"
        strand.kill()
    connection = await asyncpg.connect(url)
    workers = [Process(subject, "recover", url, number, count) for number in range(WORKERS)]
    try:
        assert await connection.fetchval("SELECT count(*) FROM effects") == count
        for statement in (LATER[subject], "VACUUM ANALYZE"):
            await connection.execute(statement)
        for worker in workers:
            assert worker.said() == "ready"
        began = time.perf_counter()
        for worker in workers:
            worker.go()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                ended = await asyncio.gather(*(asyncio.to_thread(worker.said) for worker in workers))
                assert ended == ["done"] * WORKERS
        took = time.perf_counter() - began
        done = await connection.fetchval(DONE)
        assert await connection.fetchval(WRONG) == 0
    finally:
        for worker in workers:
            worker.kill()
        await connection.close()
    return done, took


def run() -> list[Row]:
    """The benchmark."""
    found, count = [], PACE.less(COUNT)
    for subject in SUBJECTS:
        with PrivatePostgreSQL({"max_connections": "200"}) as server:
            asyncio.run(_prepared(server.url))
            done, took = asyncio.run(recovered(subject, server.url, count))
        ended = "" if done == count else f", {done:,} in {PATIENCE:.0f} s"
        case = f"{count:,} operations recovered by {WORKERS} workers"
        found.append(row(case, f"{subject}{ended}", "per s", [done / took], 0.0))
    return found


async def _prepared(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(EFFECTS)
    await connection.close()
