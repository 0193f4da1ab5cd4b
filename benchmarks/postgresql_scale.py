"""One PostgreSQL under 1, 2 and 4 HTTP servers, beside the rate at which it commits by itself.

Each server is a process of uvicorn on a port of its own, and wrk sends it requests, each under a key of its own:
CLIENTS connections in all, shared out among the servers, so the load is the same however many there are. What they do
is in postgresql_scale_app. The floor is pgbench, in C, with as many connections: transactions of one row, on one of
which everything rests, and which only the disk and the database's processors bound. On two cores clients, servers and
database share these; where the figures rise no further, everything is busy, and `effect alone` says what there was to
be had.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.http import sent, served
from benchmarks.measure import PACE, Row, Subject, interleaved, rows
from twicesafe.storm.postgresql import _programs

CLIENTS = 32
ROUNDS = 5
PROCESSES = (1, 2, 4)
WAYS = ("effect alone", "by hand", "twicesafe")
APPLICATION = "benchmarks.postgresql_scale_app:app"
TRANSACTIONS = 250
"""For each of pgbench's clients: a second, or some."""
COMMIT = "INSERT INTO ledger (account, amount) VALUES (7, 100);\n"


def requests(urls: list[str]) -> Callable[[int], Awaitable[float]]:
    """Per second, of these servers together."""

    async def run(_: int) -> float:
        found = await asyncio.gather(*(sent(url, CLIENTS // len(urls)) for url in urls))
        return sum(one["requests"] / one["microseconds"] for one in found) * 1e6

    return run


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
        # As many as are ever needed; those that are asked nothing cost nothing.
        urls = {
            way: [
                stack.enter_context(served("uvicorn", APPLICATION, BENCH_WAY=way, BENCH_URL=url))
                for _ in range(max(PROCESSES))
            ]
            for way in WAYS
        }
        subjects = [Subject("floor", committing(url, script))]
        for count in PROCESSES:
            name = f"{count} process{'es' if count > 1 else ''}"
            subjects += [Subject(f"{way}, {name}", requests(urls[way][:count])) for way in WAYS]
        asyncio.run(interleaved(subjects, rounds=ROUNDS, times=1, patience=5))
    return rows("scale-out over HTTP, transactional, one-row effect", "per s", subjects, lambda rate: rate)
