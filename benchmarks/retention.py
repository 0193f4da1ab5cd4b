"""What many records cost: claims on a large table, and claims while expired records are reaped.

`claim` compares a claim on a table of ROWS records with one on a table of 10,000, in turn, one at a time. Then claims
and answers arrive at half of the rate that the store manages, each on its own time, and a reaper takes away the oldest
tenth of the large table, which has expired: `floor` is the 99th percentile of a claim's time in windows before and
after, `reaping` in windows during it.

    python -m benchmarks.retention 10000000        loads for some minutes and takes 6 GB of disk
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from os import urandom

import asyncpg

from benchmarks.measure import Row, Subject, interleaved, rows, table
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.record import Effects, Ownership, StoredResponse
from twicesafe.reaper import Reaper
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.psycopg import PsycopgStore
from twicesafe.storm.postgresql import PrivatePostgreSQL

ROWS = 1_000_000
FEW = 10_000
TASKS = 16
ROUNDS = 9
TIMES = 400
WINDOW = 5.0
"""Seconds over which a percentile is taken."""
QUIET = 4
"""Windows before the reaper starts, and after it has ended."""
LONGEST = 300.0
"""Seconds after which reaping is not waited for any more."""
DAY_US = 86_400_000_000
ANSWER = StoredResponse(201, ((b"content-type", b"application/json"),), b'{"id": "ch_1", "amount": 100}')
SETTINGS = {
    "max_connections": "60",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    # What is written to a table that the same transaction has emptied goes to no log, so loading takes minutes.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "maintenance_work_mem": "512MB",
}

LOAD = """
BEGIN;
ALTER TABLE twicesafe_records DROP CONSTRAINT twicesafe_records_pkey;
DROP INDEX twicesafe_records_purge;
TRUNCATE twicesafe_records;
INSERT INTO twicesafe_records (
    digest, owner, epoch, created_at, lease_until, key_until, body_until, purge_minute, state, effects, fingerprint,
    scope, operation, key_hint, status, headers, body
)
SELECT
    sha256(int8send(n)), substr(sha256(int8send(-n)), 1, 16), 1, made, made, ends, ends, ends / 60000000, 'completed',
    'opaque', '\\x01'::bytea || sha256(int8send(n)), 'user', 'POST /charges', '...0001', 201, ''::bytea,
    '{"id": "ch_1", "amount": 100}'::bytea
FROM (
    SELECT
        n, now - 90000000000 + n AS made,
        CASE WHEN n <= %d THEN now - n ELSE now + 86400000000 + n END AS ends
    FROM generate_series(1::bigint, %d) AS n,
        (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS clock (now)
) AS loaded;
ALTER TABLE twicesafe_records ADD PRIMARY KEY (digest);
CREATE INDEX twicesafe_records_purge ON twicesafe_records (purge_minute);
COMMIT;
"""


def place(url: str, name: str) -> str:
    """The URL of a schema in that database."""
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"


async def loaded(url: str, name: str, count: int) -> AsyncpgStore:
    """A store with so many records, a tenth of them expired."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE SCHEMA {name}")
    await connection.execute(f"SET search_path = {name}")
    store = AsyncpgStore(place(url, name), pool_size=TASKS)
    await store.apply_schema()
    await connection.execute(LOAD % (count // 10, count))
    await connection.execute("VACUUM (ANALYZE) twicesafe_records")
    await connection.close()
    return store


async def claim(store: AsyncpgStore) -> Ownership:
    """A first claim of a new key."""
    wish = Claim(
        urandom(32), "user", "POST /charges", "...0001", GivenFingerprint(b"\x01" + urandom(32)), Effects.OPAQUE,
        urandom(16), DAY_US, DAY_US,
    )  # fmt: skip
    won = await store.claim(wish)
    assert type(won) is Claimed
    return won.ownership


def one_by_one(store: AsyncpgStore) -> Callable[[int], Awaitable[float]]:
    """Seconds for one claim of n, one at a time."""

    async def run(n: int) -> float:
        began = time.perf_counter()
        for _ in range(n):
            await claim(store)
        return (time.perf_counter() - began) / n

    return run


async def most(store: AsyncpgStore, seconds: float) -> float:
    """Claims with their answers per second, as many as there can be."""
    done = 0
    end = time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await store.complete(await claim(store), ANSWER, DAY_US, DAY_US)
            done += 1

    await asyncio.gather(*(worker() for _ in range(TASKS)))
    return done / seconds


class Arrivals:
    """Claims that arrive at a steady rate, whatever became of those before, and how long each took."""

    def __init__(self, store: AsyncpgStore, rate: float) -> None:
        self._store = store
        self._rate = rate
        self._running: set[asyncio.Task[None]] = set()

    async def window(self) -> float:
        """The 99th percentile, in seconds, of claims that were due within one window."""
        took: list[float] = []
        began = time.perf_counter()
        for number in range(int(self._rate * WINDOW)):
            due = began + number / self._rate
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(self._one(due, took))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        await asyncio.gather(*self._running)
        return statistics.quantiles(took, n=100)[-1]

    async def _one(self, due: float, took: list[float]) -> None:
        own = await claim(self._store)
        took.append(time.perf_counter() - due)
        await self._store.complete(own, ANSWER, DAY_US, DAY_US)


async def measured(url: str, count: int) -> list[Row]:
    """Both cases."""
    began = time.perf_counter()
    few, many = await loaded(url, "few", FEW), await loaded(url, "many", count)
    print(f"loaded {count:,} records in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    try:
        subjects = [Subject("floor", one_by_one(few)), Subject(f"{count:,} records", one_by_one(many))]
        await interleaved(subjects, rounds=ROUNDS, times=TIMES)
        found = rows("claim", "us", subjects, lambda seconds: seconds * 1_000_000)

        rate = await most(many, 2 * WINDOW)
        arrivals = Arrivals(many, rate / 2)
        await arrivals.window()
        quiet = [await arrivals.window() for _ in range(QUIET)]
        reaping, seconds = [], time.perf_counter()
        stopping = threading.Event()
        with_reaper = asyncio.create_task(asyncio.to_thread(reap, place(url, "many"), stopping))
        while not with_reaper.done() and time.perf_counter() < seconds + LONGEST:
            reaping.append(await arrivals.window())
        stopping.set()
        purged = await with_reaper
        seconds = time.perf_counter() - seconds
        quiet += [await arrivals.window() for _ in range(QUIET)]
        print(f"reaped {purged:,} records in {seconds:.0f} s beside {rate / 2:,.0f} claims/s", file=sys.stderr)
        floor = statistics.median(quiet)
        for name, figures in (("floor", quiet), (f"reaping {purged:,} records", reaping)):
            p99 = statistics.median(figures)
            found.append(
                Row(
                    case="99th percentile of a claim at half load",
                    subject=name,
                    median=round(p99 * 1_000, 3),
                    unit="ms",
                    ratio_to_floor=round(p99 / floor, 3),
                    runs=len(figures),
                )
            )
    finally:
        await few.aclose()
        await many.aclose()
    return found


class Counted(PsycopgStore):
    """Knows how many records it took away."""

    purged = 0

    def purge(self, limit: int = 1000) -> int:
        touched = super().purge(limit)
        self.purged += touched
        return touched


def reap(url: str, stopping: threading.Event) -> int:
    """One round of the reaper as it comes, or what there is time for; how many records it took away."""
    store = Counted(url, pool_size=1)
    Reaper(store).run_once(stopping)
    store.close()
    return store.purged


def run(count: int = ROWS) -> list[Row]:
    """The benchmark, on a private server with fsync on."""
    with PrivatePostgreSQL(SETTINGS) as server:
        return asyncio.run(measured(server.url, count))


if __name__ == "__main__":
    print(table(run(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)))
