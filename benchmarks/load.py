"""Work done by so many tasks, or threads, at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

Once = Callable[[], Awaitable[None]]
BlockingOnce = Callable[[], None]


def throughput(once: Once, tasks: int) -> Callable[[int], Awaitable[float]]:
    """Seconds for one of n, at so many at a time."""

    async def run(n: int) -> float:
        left = iter(range(n))

        async def worker() -> None:
            for _ in left:
                await once()

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(tasks)))
        return (time.perf_counter() - began) / n

    return run


def blocking_throughput(
    once: BlockingOnce, threads: ThreadPoolExecutor, count: int
) -> Callable[[int], Awaitable[float]]:
    """The same, in so many threads."""

    async def run(n: int) -> float:
        left = iter(range(n))

        def work() -> None:
            for _ in left:
                once()

        began = time.perf_counter()
        for working in [threads.submit(work) for _ in range(count)]:
            working.result()
        return (time.perf_counter() - began) / n

    return run
