"""What 10,000 callers who flood a service with new keys cost it, and those who were there before.

Regular callers send new keys at a steady pace, each request on its own time, before, during and after a flood. The
flood's callers send new keys as well, at a pace that the service can refuse. It is done without limits and with them,
for each store. Told are the median of the regular callers' times and their 99th percentile, who was refused, the
records that the flood has left beside the bound that the limits set, and how much the process has grown.

    python -m benchmarks.flood [STORE ...] [--rate 200] [--seconds 60] [--json]

It measures one process that does both: what the flood takes of its processor is taken from everybody.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from twicesafe import Limits, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.storm.postgresql import PrivatePostgreSQL

CALLERS: Final = 10_000
REGULAR: Final = 20
PACE: Final = 2
"""Requests a second of each regular caller."""
WITHIN: Final = 10
"""Seconds of the limits' window: short, so that a run shows several."""
LIMITS: Final = Limits(new_keys=50, new_keys_in_all=1_000, within=timedelta(seconds=WITHIN))
WINDOW: Final = 10
"""Seconds over which a percentile is taken."""
QUIET: Final = 20
"""Seconds before the flood, and after it; those before begin once the regular callers are regular ones."""
STORES: Final = ("memory", "sqlite", "postgresql")


class Result(NamedTuple):
    """One run."""

    store: str
    limited: bool
    flood: int
    """Requests of the flood."""
    flood_refused: int
    regular_refused: int
    p50_quiet_ms: float
    p50_flood_ms: float
    p99_quiet_ms: float
    p99_flood_ms: float
    records: int
    """That the flood has left."""
    records_at_most: int
    """By the limits, for so long; 0 without."""
    grown_mb: float
    callers_remembered: int

    @property
    def p99_ratio(self) -> float:
        """How much worse regular callers fare at the 99th percentile."""
        return self.p99_flood_ms / self.p99_quiet_ms


async def app(scope: Any, receive: Any, send: Any) -> None:
    """A service with little to do."""
    await receive()
    body = b'{"id": "ch_1"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Service:
    """One process's service, asked without any server between."""

    def __init__(self, store: Any, limits: Limits) -> None:
        self._safe = IdempotencyMiddleware(
            app, store, scope=lambda scope: str(scope["caller"]), policy=Policy(limits=limits), observer=lambda _: None
        )
        self._numbers = itertools.count()

    @property
    def callers_remembered(self) -> int:
        """By the limits."""
        return sum(len(one) for one in self._safe._shared.admissions.values())

    async def ask(self, caller: str) -> int:
        """One request with a new key; its status."""
        status = 0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b'{"amount": 100}', "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        scope = {
            "type": "http", "method": "POST", "path": "/charges", "raw_path": b"/charges", "query_string": b"",
            "headers": [(b"idempotency-key", b"key-%018d" % next(self._numbers))], "caller": caller,
        }  # fmt: skip
        await self._safe(scope, receive, send)
        return status


async def on_time(service: Service, names: list[str], rate: float, seconds: float) -> tuple[list[float], Counter[int]]:
    """Requests that are due at a steady rate, by callers in turn: how long each took from when it was due."""
    took: list[float] = []
    statuses: Counter[int] = Counter()
    running: set[asyncio.Task[None]] = set()

    async def one(due: float, caller: str) -> None:
        statuses[await service.ask(caller)] += 1
        took.append(time.perf_counter() - due)

    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        wait = due - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(one(due, names[number % len(names)]))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return took, statuses


def resident_mb() -> float:
    """How much memory the process has."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def percentile(took: list[float], which: int) -> float:
    """In milliseconds: the median of windows, for what else runs on the machine comes and goes."""
    size = REGULAR * PACE * WINDOW
    windows = [took[start : start + size] for start in range(0, len(took), size)]
    return statistics.median(statistics.quantiles(window, n=100)[which - 1] for window in windows) * 1000


async def count(store: Any) -> int:
    """How many records there are."""
    if hasattr(store, "__len__"):
        return len(store)
    async with store.transaction() as transaction:
        await transaction.begin()
        ask = transaction.connection.execute_fetchall if isinstance(store, AsyncSqliteStore) else None
        text = "SELECT count(*) FROM twicesafe_records"
        return int((await ask(text))[0][0] if ask else await transaction.connection.fetchval(text))


async def trial(name: str, store: Any, limits: Limits, rate: float, seconds: float) -> Result:
    """Quiet, flood, quiet."""
    service = Service(store, limits)
    regular = [f"regular-{number}" for number in range(REGULAR)]
    crowd = [f"crowd-{number}" for number in range(CALLERS)]
    await on_time(service, regular, REGULAR * PACE, WITHIN + 2)
    quiet, told = await on_time(service, regular, REGULAR * PACE, QUIET)
    before, size = await count(store), resident_mb()
    (during, regulars), (_, flood) = await asyncio.gather(
        on_time(service, regular, REGULAR * PACE, seconds), on_time(service, crowd, rate, seconds)
    )
    grown = resident_mb() - size
    records = await count(store) - before - regulars[201]
    more, _ = await on_time(service, regular, REGULAR * PACE, QUIET)
    quiet += more
    limited = limits.counts_keys
    newcomers = (limits.new_keys_in_all or 0) // 2
    return Result(
        store=name, limited=limited, flood=flood.total(), flood_refused=flood[429],
        regular_refused=regulars[429] + told[429],
        p50_quiet_ms=percentile(quiet, 50), p50_flood_ms=percentile(during, 50),
        p99_quiet_ms=percentile(quiet, 99), p99_flood_ms=percentile(during, 99),
        records=records, records_at_most=int(newcomers * (seconds / WITHIN + 1)) if limited else 0,
        grown_mb=grown, callers_remembered=service.callers_remembered,
    )  # fmt: skip


@asynccontextmanager
async def opened(name: str) -> AsyncIterator[Any]:
    """An empty store of this kind."""
    if name == "memory":
        yield AsyncMemoryStore()
    elif name == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            on_file = AsyncSqliteStore(Path(folder) / "records.db")
            await on_file.apply_schema()
            yield on_file
            await on_file.aclose()
    else:
        with PrivatePostgreSQL() as server:
            store = AsyncpgStore(server.url)
            await store.apply_schema()
            yield store
            await store.aclose()


async def run(names: list[str], rate: float, seconds: float) -> list[Result]:
    """Each store without limits and with them."""
    found = []
    for name in names:
        for limits in (Limits(), LIMITS):
            async with opened(name) as store:
                found.append(await trial(name, store, limits, rate, seconds))
                print(shown(found[-1]), file=sys.stderr)
    return found


def shown(result: Result) -> str:
    """In a line."""
    bound = f" (at most {result.records_at_most:,})" if result.limited else ""
    return (
        f"{result.store}, {'limited' if result.limited else 'without limits'}: {result.flood:,} of the flood, "
        f"{result.flood_refused:,} refused, {result.regular_refused} of the regular callers'; regular p99 "
        f"{result.p99_quiet_ms:.1f} -> {result.p99_flood_ms:.1f} ms ({result.p99_ratio:.2f}), p50 "
        f"{result.p50_quiet_ms:.1f} -> {result.p50_flood_ms:.1f} ms; {result.records:,} records left{bound}; "
        f"{result.grown_mb:+.1f} MB; {result.callers_remembered:,} callers remembered"
    )


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood", description="10,000 callers with new keys.")
    parser.add_argument("stores", nargs="*", metavar="STORE", default=list(STORES))
    parser.add_argument("--rate", type=float, default=200.0, help="requests of the flood in a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it lasts")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if unknown := set(chosen.stores) - set(STORES):
        parser.error(f"no store is called {', '.join(sorted(unknown))}: choose from {', '.join(STORES)}")
    found = asyncio.run(run(chosen.stores, chosen.rate, chosen.seconds))
    if chosen.json:
        print(json.dumps([{**one._asdict(), "p99_ratio": one.p99_ratio} for one in found], indent=2))


if __name__ == "__main__":
    main()
