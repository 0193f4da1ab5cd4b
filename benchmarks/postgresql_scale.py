"""One PostgreSQL under 1, 2 and 4 server processes, beside the rate at which it commits by itself.

A server process has an event loop, CONNECTIONS connections and as many requests at a time. `twicesafe` is the whole
request in the ASGI shell: claim, effect of one row and answer in one transaction by asyncpg; `by hand` sends the same
statements. The floor is pgbench, in C, with CLIENTS connections: transactions of one row, on one of which everything
rests, and which only the disk and the server's processors bound. On two cores clients and server share these; where
the figures rise no further, everything is busy.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from benchmarks.load import Once
from benchmarks.measure import PACE, Row, Subject, interleaved, rows
from twicesafe import Effects, Policy
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.storm.postgresql import _programs

CONNECTIONS = 16
CLIENTS = 32
ROUNDS = 5
PROCESSES = (1, 2, 4)
SECONDS = 1.0
TRANSACTIONS = 250
"""For each of pgbench's clients: a second, or some."""
COMMIT = "INSERT INTO ledger (account, amount) VALUES (7, 100);\n"


# --- a server process -------------------------------------------------------------------------------------------------


async def protected(url: str) -> Once:
    """Requests to twicesafe's ASGI shell."""
    from benchmarks.postgresql import by_shell, one_row

    store = AsyncpgStore(url, pool_size=CONNECTIONS)
    return by_shell(store, one_row, Policy(effects=Effects.TRANSACTIONAL))


async def by_hand(url: str) -> Once:
    """The same statements."""
    from benchmarks.postgresql import ByHand, by_pool, no_reset, one_row

    pool = await asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS, reset=no_reset)
    return by_pool(pool, ByHand(), one_row)


async def serving(told: Connection, prepare: Callable[[str], Awaitable[Once]], url: str) -> None:
    """For each number of seconds that arrives, work so long, and say how often it was done. None ends it."""
    once = await prepare(url)
    await once()
    told.send("ready")
    while (seconds := await asyncio.to_thread(told.recv)) is not None:
        done, end = 0, time.perf_counter() + seconds

        async def worker() -> None:
            nonlocal done
            while time.perf_counter() < end:  # noqa: B023 - of this round
                await once()
                done += 1

        await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
        told.send(done)


def serve(told: Connection, prepare: Callable[[str], Awaitable[Once]], url: str) -> None:
    """A process's whole life."""
    asyncio.run(serving(told, prepare, url))


class Processes:
    """As many of them as are ever needed; those that are told to do nothing cost nothing."""

    def __init__(self, prepare: Callable[[str], Awaitable[Once]], url: str) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(max(PROCESSES))]
        self._lines: list[Any] = [here for here, _ in pipes]
        self._processes = [context.Process(target=serve, args=(there, prepare, url), daemon=True) for _, there in pipes]

    def __enter__(self) -> Processes:
        for process in self._processes:
            process.start()
        for line in self._lines:
            assert line.recv() == "ready"
        return self

    def __exit__(self, *exc: object) -> None:
        for line in self._lines:
            line.send(None)
        for process in self._processes:
            process.join(10)
            process.kill()

    def rate(self, count: int) -> Callable[[int], Awaitable[float]]:
        """Requests per second of so many processes together."""

        async def run(_: int) -> float:
            seconds = SECONDS * PACE.less(10, 3) / 10
            for line in self._lines[:count]:
                line.send(seconds)
            return sum(line.recv() for line in self._lines[:count]) / seconds

        return run


# --- the database alone -----------------------------------------------------------------------------------------------


def committing(url: str, script: Path) -> Callable[[int], Awaitable[float]]:
    """Transactions of one row per second, by pgbench."""
    where = urlsplit(url)
    command = [
        str(_programs() / "pgbench"), "--no-vacuum", "--protocol=prepared", f"--client={CLIENTS}",
        f"--transactions={PACE.less(TRANSACTIONS)}", f"--file={script}", f"--host={where.hostname}",
        f"--port={where.port}", f"--username={where.username}",
        where.path.removeprefix("/"),
    ]  # fmt: skip
    environment = {**os.environ, "PGPASSWORD": where.password or ""}

    async def run(_: int) -> float:
        ran = await asyncio.to_thread(
            subprocess.run, command, env=environment, check=True, capture_output=True, text=True
        )
        found = re.search(r"tps = ([\d.]+)", ran.stdout)
        assert found is not None, ran.stdout
        return float(found[1])

    return run


def run(url: str) -> list[Row]:
    """Part of benchmarks.postgresql, on a database with twicesafe's tables and the ledger."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        script = folder / "commit.sql"
        script.write_text(COMMIT, encoding="utf-8")
        ours = stack.enter_context(Processes(protected, url))
        theirs = stack.enter_context(Processes(by_hand, url))
        subjects = [Subject("floor", committing(url, script))]
        for count in PROCESSES:
            name = f"{count} process{'es' if count > 1 else ''}"
            subjects.append(Subject(f"by hand, {name}", theirs.rate(count)))
            subjects.append(Subject(f"twicesafe, {name}", ours.rate(count)))
        asyncio.run(interleaved(subjects, rounds=ROUNDS, times=1, patience=5))
    return rows("scale-out, transactional, one-row effect", "per s", subjects, lambda rate: rate)
