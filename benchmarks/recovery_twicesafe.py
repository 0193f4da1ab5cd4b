"""A process of benchmarks.recovery: `python -m benchmarks.recovery_twicesafe strand|recover URL NUMBER COUNT`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any

from benchmarks.recovery import ready, say
from twicesafe.once import AsyncOnce, current
from twicesafe.stores.asyncpg import AsyncpgStore

CONNECTIONS = 16
"""And as many operations at once."""
EFFECT = "INSERT INTO effects (operation, step) VALUES ($1, $2)"


async def effect(connection: Any, name: str, step: int) -> int:
    """A phase."""
    await connection.execute(EFFECT, name, step)
    return step


def defined(once: AsyncOnce, stranded: asyncio.Semaphore | None) -> Any:
    """The operation. Where `stranded` is given it stops for ever after its first phase."""

    @once.operation(
        key=lambda name: name,
        effects="resumable",
        name="three",
        lease=timedelta(hours=1 if stranded else 0, seconds=30),
    )
    async def three(name: str) -> int:
        at: Any = current()
        total = await at.phase("step 0", effect, name, 0)
        if stranded is not None:
            stranded.release()
            await asyncio.get_running_loop().create_future()
        total += await at.phase("step 1", effect, name, 1)
        total += await at.phase("step 2", effect, name, 2)
        return int(total)

    return three


async def strand(once: AsyncOnce, number: int, count: int) -> None:
    """Begin so many operations, and never end them. The leases are long, so that none has to be renewed meanwhile."""
    stranded = asyncio.Semaphore(0)
    three = defined(once, stranded)
    tasks = []
    for at in range(0, count, CONNECTIONS):
        some = range(at, min(at + CONNECTIONS, count))
        tasks += [asyncio.create_task(three(f"{number}-{one}")) for one in some]
        for _ in some:
            await stranded.acquire()
    say("stranded")
    await asyncio.gather(*tasks)


async def recover(once: AsyncOnce, count: int) -> None:
    """Round after round until nothing is left."""
    defined(once, None)
    while True:
        round_ = await once.resume(at_once=CONNECTIONS)
        if not round_.more and not round_.done:
            break
    say("done")
    await asyncio.get_running_loop().create_future()


async def main(role: str, url: str, number: int, count: int) -> None:
    """The process."""
    store = AsyncpgStore(url, pool_size=CONNECTIONS)
    await store.apply_schema()
    once = AsyncOnce(store, scope="bench", observer=lambda event: None)
    await store.now()
    ready()
    await (strand(once, number, count) if role == "strand" else recover(once, count))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
