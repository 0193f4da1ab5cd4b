"""How late the latest requests are while KEYS keys are remembered in the process's memory, and what its collector does.

Each subject has a process of its own, which fills the store and then answers first requests, in rounds that alternate
between the subjects. The floor keeps its records as tuples of what they consist of. The figures are the 99th percentile
and the longest wait among a round's requests, and the longest pause that the garbage collector made, among those of
whole collections: one is asked for in each round, because they come about once in so many million objects. All are the
process's own time on the processor, or every other process of the machine would show in them.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from os import urandom
from typing import Any

from benchmarks.asgi import Lean, application, fresh_key, request, taken
from benchmarks.measure import PACE, Row, Subject, interleaved, rows
from benchmarks.statements import ANSWER, BODY, LINES, wish
from twicesafe import Effects, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.claims import Claimed
from twicesafe.core.record import StoredResponse
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore

KEYS = 1_000_000
"""But in a quick run."""
REQUESTS = 10_000
ROUNDS = 5


def lean(count: int) -> Any:
    """The floor with so many records."""
    made = Lean(application(ANSWER))
    for _ in range(count):
        lines = [(bytes(name), bytes(line)) for name, line in LINES]
        made.records[urandom(32)] = (b"\x01" + urandom(32), (201, lines, bytes(bytearray(ANSWER))))
    return made


def protected(count: int) -> Any:
    """twicesafe with so many records."""
    store = MemoryStore(records_at_most=10 * count, bytes_at_most=1 << 40)
    policy = Policy(effects=Effects.OPAQUE)
    for _ in range(count):
        won = store.claim(wish(policy))
        assert type(won) is Claimed
        response = StoredResponse(201, LINES, bytes(bytearray(ANSWER)))
        store.complete(won.ownership, response, policy.key_us, policy.body_us)
    return IdempotencyMiddleware(application(ANSWER), AsyncMemoryStore(store), scope=lambda scope: "user")


def bare(_: int) -> Any:
    """The application alone, which remembers nothing."""
    return application(ANSWER)


def serve(told: Connection, make: Callable[[int], Any], keys: int) -> None:
    """A process's whole life: for each number that arrives answer so many requests, and say how late they were."""
    gc.disable()
    app = make(keys)
    gc.enable()
    pauses: list[float] = []
    began = 0.0

    def watched(phase: str, _: object) -> None:
        nonlocal began
        if phase == "start":
            began = time.process_time()
        else:
            pauses.append(time.process_time() - began)

    gc.callbacks.append(watched)

    async def answered(count: int) -> list[float]:
        waits = []
        for number in range(count):
            scope, receive = request(fresh_key(), BODY)
            since = time.process_time()
            if number == count // 2:
                gc.collect()
            await app(scope, receive, taken)
            waits.append(time.process_time() - since)
        return waits

    told.send("ready")
    while (count := told.recv()) is not None:
        pauses.clear()
        waits = asyncio.run(answered(count))
        told.send((statistics.quantiles(waits, n=100)[-1], max(waits), max(pauses)))


class Process:
    """A process that answers."""

    def __init__(self, make: Callable[[int], Any], keys: int, stack: ExitStack) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, there = context.Pipe()
        self._process = context.Process(target=serve, args=(there, make, keys), daemon=True)
        self._process.start()
        stack.callback(self._end)
        self.others: list[tuple[float, float]] = []
        """Longest wait and longest pause, round by round."""

    def ready(self) -> None:
        """Wait until the store is full."""
        assert self._line.recv() == "ready"

    def _end(self) -> None:
        self._line.send(None)
        self._process.join(10)
        self._process.kill()

    def run(self) -> Callable[[int], Awaitable[float]]:
        """The 99th percentile."""

        async def run(times: int) -> float:
            self._line.send(times)
            p99, longest, pause = self._line.recv()
            self.others.append((longest, pause))
            return float(p99)

        return run


def run() -> list[Row]:
    """Part of benchmarks.asgi."""
    keys = PACE.less(KEYS, 5_000)
    with ExitStack() as stack:
        ways = {"bare": bare, "floor": lean, "twicesafe": protected}
        processes = {name: Process(make, keys, stack) for name, make in ways.items()}
        for process in processes.values():
            process.ready()
        subjects = [Subject(name, process.run()) for name, process in processes.items()]
        asyncio.run(interleaved(subjects, rounds=ROUNDS, times=REQUESTS))
    found = rows("p99, many keys remembered", "us", subjects, lambda seconds: seconds * 1e6)
    for at, case in enumerate(("longest wait", "longest collection")):
        others = [Subject(one.name, one.run, [pair[at] for pair in processes[one.name].others[1:]]) for one in subjects]
        found += rows(f"{case}, many keys remembered", "ms", others, lambda seconds: seconds * 1e3)
    return found
