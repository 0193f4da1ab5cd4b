"""Requests per second over loopback, as wrk sends them: each under a key of its own, in one process, memory store.

uvicorn and granian serve the Starlette application of benchmarks.asgi: alone (`bare`), inside of the floor, of
twicesafe, and under uvicorn of the peers, all with uvloop where it is. CLIENTS connections send one request after
another from one thread of wrk, so that on two cores each has one. All servers are there all the time; those that are
asked nothing cost nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from benchmarks.asgi import subjects
from benchmarks.measure import PACE, Row, Subject, interleaved, rows

CLIENTS = 32
ROUNDS = 5
SECONDS = 1
SCRIPT = Path(__file__).with_name("http_keys.lua")
APPLICATION = "benchmarks.http_app:app"
ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
"""Seconds for a server to start."""

SERVERS = {
    "uvicorn": [
        "uvicorn", "--log-level", "critical", "--no-access-log", "--timeout-keep-alive", "75", "--host", "127.0.0.1",
    ],
    "granian": ["granian", "--interface", "asgi", "--no-log", "--no-ws", "--workers", "1", "--host", "127.0.0.1"],
}  # fmt: skip


def free_port() -> int:
    """A port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@contextmanager
def served(server: str, application: str, **environment: str) -> Iterator[str]:
    """The URL of an application in a process of its own, which has this environment."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", *SERVERS[server], "--port", str(port), application],
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
    )
    try:
        end = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None, f"{server} with {application} {environment} ended"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < end, f"{server} with {application} does not listen"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/jobs"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass
class Waits:
    """Of one subject, round by round, in milliseconds."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)


async def sent(url: str, connections: int) -> dict[str, int]:
    """What a second of wrk has found; see http_keys.lua."""
    command = [
        "wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{SECONDS}s", "--timeout", "10s",
        "--script", str(SCRIPT), url, "--", uuid4().hex[:12],
    ]  # fmt: skip
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(ran.stdout.strip().splitlines()[-1])
    assert not found["failed"], ran.stdout
    return found


def sending(url: str, waits: Waits) -> Callable[[int], Awaitable[float]]:
    """Requests per second."""

    async def run(_: int) -> float:
        found = await sent(url, CLIENTS)
        waits.p50.append(found["p50"] / 1000)
        waits.p99.append(found["p99"] / 1000)
        return float(found["requests"] / found["microseconds"] * 1e6)

    return run


def compared(server: str, names: list[str]) -> list[Row]:
    """All figures of one server."""
    with ExitStack() as stack:
        waits = {name: Waits() for name in names}
        urls = {name: stack.enter_context(served(server, APPLICATION, BENCH_SUBJECT=name)) for name in names}
        measured = [Subject(name, sending(urls[name], waits[name])) for name in names]
        asyncio.run(interleaved(measured, rounds=ROUNDS, times=1, patience=5))
    found = rows(f"{server}, requests", "per s", measured, lambda rate: rate)
    bare = measured[0]
    share = [
        Subject(one.name, one.run, [mine / theirs for mine, theirs in zip(one.figures, bare.figures, strict=True)])
        for one in measured
    ]
    found += rows(f"{server}, requests beside the bare application's", "x", share, lambda ratio: ratio)
    for percentile in ("p50", "p99"):
        # Of the warm-up round too; it comes first.
        late = [Subject(one.name, one.run, getattr(waits[one.name], percentile)[1:]) for one in measured]
        found += rows(f"{server}, {percentile}", "ms", late, lambda wait: wait)
    return found


def run() -> list[Row]:
    """The benchmark."""
    every = list(subjects())
    few = ["bare", "floor", "twicesafe"]
    return [*compared("uvicorn", few if PACE.quick else every), *compared("granian", few)]
