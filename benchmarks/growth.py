"""What many records cost on SQLite, PostgreSQL and MariaDB: a claim's time, and the bytes that a record takes.

Claims on stores of SIZES records, in turn, one at a time; the ratio is to the smallest. The bytes' floor is a table by
hand, in the same database and filled in the same order, of what has to be there whoever writes it: digest, fingerprint,
end of retention, status, header lines and body. Records are made by the database itself, in batches. Ten million take
some ten minutes, 15 GB of disk and 10 GB of memory, and go into the newest results and the page:

    python -m benchmarks growth --largest 10000000 --write

growth_reaping measures claims while expired records are taken away.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncmy
import asyncpg

from benchmarks import growth_reaping
from benchmarks.measure import PACE, Row, Subject, interleaved, row, rows
from benchmarks.statements import ANSWER, DAY, LINES, wish
from twicesafe import Effects, Policy
from twicesafe.core.claims import Claimed
from twicesafe.stores import mysql
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.packing import pack_headers
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.storm.mariadb import PrivateMariaDB
from twicesafe.storm.postgresql import PrivatePostgreSQL

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
ROUNDS = 7
TIMES = 300
POLICY = Policy(effects=Effects.OPAQUE)
HEADERS = pack_headers(LINES)

Sized = dict[int, tuple[AsyncStore, float]]
"""Records to a store that has so many, and the bytes that each takes."""


def sizes() -> list[int]:
    """Of the stores to fill."""
    largest = min(PACE.largest, 20_000) if PACE.quick else PACE.largest
    return [size for size in SIZES if size < largest] + [largest]


def one_by_one(store: AsyncStore) -> Callable[[int], Awaitable[float]]:
    """Seconds for one claim of n, one at a time."""

    async def run(n: int) -> float:
        began = time.perf_counter()
        for _ in range(n):
            assert type(await store.claim(wish(POLICY))) is Claimed
        return (time.perf_counter() - began) / n

    return run


async def grown(database: str, stores: Sized, by_hand: float) -> list[Row]:
    """Both cases of one database."""
    subjects = [Subject(f"{size:,} records", one_by_one(store)) for size, (store, _) in stores.items()]
    await interleaved(subjects, rounds=ROUNDS, times=TIMES)
    found = rows(f"{database}, claim", "us", subjects, lambda seconds: seconds * 1e6, subjects[0].name)
    case = f"{database}, bytes per record"
    found.append(row(case, "floor", "bytes", [by_hand], 1.0))
    found += [
        row(case, f"twicesafe, {size:,} records", "bytes", [each], each / by_hand) for size, (_, each) in stores.items()
    ]
    return found


def told(database: str, size: int, began: float) -> None:
    """Say what takes its time."""
    print(f"{database}: filled with {size:,} records in {time.perf_counter() - began:.0f} s", file=sys.stderr)


# --- SQLite -----------------------------------------------------------------------------------------------------------

BY_HAND = (
    "CREATE TABLE by_hand (digest {binary} NOT NULL PRIMARY KEY, fingerprint {binary} NOT NULL, until BIGINT NOT NULL, "
    "status SMALLINT, headers {bytes}, body {bytes})"
)
COLUMNS = (
    "digest, owner, epoch, created_at, lease_until, key_until, body_until, purge_minute, state, effects, fingerprint, "
    "scope, operation, key_hint, status, headers, body"
)


LOADING = """
PRAGMA synchronous = OFF;
PRAGMA journal_mode = OFF;
PRAGMA cache_size = -2000000;
"""
NUMBERED = "WITH RECURSIVE numbered (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM numbered WHERE n < ?2)"
# As they are when they are done, in an order that their keys do not have.
RECORDS = f"""
INSERT INTO twicesafe_records ({COLUMNS}) {NUMBERED}
SELECT
    randomblob(32), randomblob(16), 1, ?3 + n, ?3 + n, ?3 + n + {DAY}, ?3 + n + {DAY}, (?3 + n + {DAY}) / 60000000,
    'completed', 'opaque', CAST(x'01' || randomblob(32) AS BLOB), 'user', 'POST /charges', '...0001', 201,
    x'{HEADERS.hex()}', x'{ANSWER.hex()}'
FROM numbered
"""
RECORDS_BY_HAND = f"""
INSERT INTO by_hand {NUMBERED}
SELECT
    randomblob(32), CAST(x'01' || randomblob(32) AS BLOB), ?3 + n + {DAY}, 201, x'{HEADERS.hex()}', x'{ANSWER.hex()}'
FROM numbered
"""
BATCH = 500_000
"""Records that are loaded in one statement: what a database keeps until its end stays small."""


def batches(count: int) -> Iterator[tuple[int, int]]:
    """The first and the last of each."""
    return ((first, min(first + BATCH - 1, count)) for first in range(1, count + 1, BATCH))


def fill_sqlite(path: Path, count: int, *, by_hand: bool = False) -> float:
    """Bytes per record. Nobody else may have the file open."""
    began = time.time_ns() // 1000 - count
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(LOADING)
        connection.create_function("twicesafe_now", 0, lambda: 0)
        if by_hand:
            connection.execute(BY_HAND.format(binary="BLOB", bytes="BLOB"))
        for first, last in batches(count):
            connection.execute(RECORDS_BY_HAND if by_hand else RECORDS, (first, last, began))
        connection.execute("PRAGMA journal_mode = WAL")
    return path.stat().st_size / count


async def on_sqlite() -> list[Row]:
    """A file for each size."""
    stores: Sized = {}
    with tempfile.TemporaryDirectory() as folder:
        few = min(sizes()[-1], 100_000)
        by_hand = fill_sqlite(Path(folder, "by_hand.db"), few, by_hand=True)
        for size in sizes():
            began, path = time.perf_counter(), Path(folder, f"{size}.db")
            empty = AsyncSqliteStore(path)
            await empty.apply_schema()
            await empty.aclose()
            each = fill_sqlite(path, size)
            stores[size] = AsyncSqliteStore(path), each
            told("SQLite", size, began)
        try:
            return await grown("SQLite", stores, by_hand)
        finally:
            for store, _ in stores.values():
                await store.aclose()


# --- PostgreSQL -------------------------------------------------------------------------------------------------------

SETTINGS = {
    "max_connections": "60",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    # What is written to a table that the same transaction has emptied goes to no log, so loading takes minutes.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "maintenance_work_mem": "512MB",
}

LOAD = f"""
BEGIN;
ALTER TABLE twicesafe_records DROP CONSTRAINT twicesafe_records_pkey;
DROP INDEX twicesafe_records_purge;
TRUNCATE twicesafe_records;
INSERT INTO twicesafe_records ({COLUMNS})
SELECT
    sha256(int8send(n)), substr(sha256(int8send(-n)), 1, 16), 1, made, made, ends, ends, ends / 60000000, 'completed',
    'opaque', '\\x01'::bytea || sha256(int8send(n)), 'user', 'POST /charges', '...0001', 201,
    '\\x{HEADERS.hex()}'::bytea, '\\x{ANSWER.hex()}'::bytea
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
LEAN = (
    "INSERT INTO by_hand SELECT digest, fingerprint, key_until, status, headers, body FROM twicesafe_records "
    "ORDER BY created_at"
)


def place(url: str, name: str) -> str:
    """The URL of a schema in that database."""
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"


async def fill_postgresql(url: str, count: int) -> tuple[AsyncpgStore, float, float]:
    """A store with so many records, a tenth of them expired; its bytes per record; and those of a table by hand."""
    name, by_hand = f"with_{count}", 0.0
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE SCHEMA {name}")
    await connection.execute(f"SET search_path = {name}")
    store = AsyncpgStore(place(url, name), pool_size=growth_reaping.TASKS)
    await store.apply_schema()
    await connection.execute(LOAD % (count // 10, count))
    await connection.execute("VACUUM (ANALYZE) twicesafe_records")
    each = await connection.fetchval("SELECT pg_total_relation_size('twicesafe_records')") / count
    if count <= 100_000:
        await connection.execute(BY_HAND.format(binary="bytea", bytes="bytea"))
        await connection.execute(LEAN)
        by_hand = await connection.fetchval("SELECT pg_total_relation_size('by_hand')") / count
    await connection.close()
    return store, each, by_hand


async def on_postgresql(url: str) -> list[Row]:
    """A schema for each size; then reaping in the largest."""
    stores: Sized = {}
    by_hand = 0.0
    for size in sizes():
        began = time.perf_counter()
        store, each, lean = await fill_postgresql(url, size)
        stores[size], by_hand = (store, each), lean or by_hand
        told("PostgreSQL", size, began)
    try:
        found = await grown("PostgreSQL", stores, by_hand)
        return found + await growth_reaping.measured(store, place(url, f"with_{size}"))
    finally:
        for one, _ in stores.values():
            await one.aclose()


# --- MariaDB ----------------------------------------------------------------------------------------------------------

FILL = f"""
INSERT INTO twicesafe_records ({COLUMNS})
SELECT
    UNHEX(SHA2(seq, 256)), UNHEX(MD5(seq)), 1, made, made, made + {DAY}, made + {DAY}, (made + {DAY}) DIV 60000000,
    'completed', 'opaque', CONCAT(x'01', UNHEX(SHA2(-seq, 256))), 'user', 'POST /charges', '...0001', 201,
    x'{HEADERS.hex()}', x'{ANSWER.hex()}'
FROM (SELECT seq, UNIX_TIMESTAMP() * 1000000 + seq AS made FROM seq_%d_to_%d) AS loaded
"""
FILL_LEAN = f"""
INSERT INTO by_hand
SELECT UNHEX(SHA2(seq, 256)), CONCAT(x'01', UNHEX(SHA2(-seq, 256))), 1, 201, x'{HEADERS.hex()}', x'{ANSWER.hex()}'
FROM seq_1_to_%d
"""
SPACE = "SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


async def space(cursor: Any, database: str, name: str) -> int:
    """Of a table and its indexes."""
    await cursor.execute(f"ANALYZE TABLE {name}")
    await cursor.fetchall()
    await cursor.execute(SPACE, (database, name))
    return int((await cursor.fetchone())[0])


async def fill_mariadb(server: PrivateMariaDB, count: int) -> tuple[AsyncmyStore, float, float]:
    """As on PostgreSQL, in a database of its own."""
    name, by_hand = f"with_{count}", 0.0
    where = mysql.address(server.url)
    connection = await asyncmy.connect(
        host=where.host, port=where.port, user=where.user, password=where.password, autocommit=True
    )
    async with connection.cursor() as cursor:
        await cursor.execute(f"CREATE DATABASE {name}")
        await cursor.execute(f"USE {name}")
        store = AsyncmyStore(server.dsn(name), pool_size=2)
        await store.apply_schema()
        for batch in batches(count):
            await cursor.execute(FILL % batch)
        each = await space(cursor, name, "twicesafe_records") / count
        if count <= 100_000:
            await cursor.execute(BY_HAND.format(binary="VARBINARY(64)", bytes="LONGBLOB"))
            await cursor.execute(FILL_LEAN % count)
            by_hand = await space(cursor, name, "by_hand") / count
    connection.close()
    return store, each, by_hand


async def on_mariadb(server: PrivateMariaDB) -> list[Row]:
    """A database for each size."""
    stores: Sized = {}
    by_hand = 0.0
    for size in sizes():
        began = time.perf_counter()
        store, each, lean = await fill_mariadb(server, size)
        stores[size], by_hand = (store, each), lean or by_hand
        told("MariaDB", size, began)
    try:
        return await grown("MariaDB", stores, by_hand)
    finally:
        for one, _ in stores.values():
            await one.aclose()


def in_memory(count: int) -> dict[str, str]:
    """MariaDB's settings: room for so many records, for they come in an order that their keys do not have, and InnoDB
    reads no page of a table that lies in the order of its keys through the system's cache."""
    gigabytes = max(1, -(-count * 650 // 10**9))
    return {"innodb-buffer-pool-size": f"{gigabytes}G", "innodb-log-file-size": f"{min(4, gigabytes)}G"}


def run() -> list[Row]:
    """The benchmark, on private servers with fsync on."""
    found = asyncio.run(on_sqlite())
    with PrivatePostgreSQL(SETTINGS) as server:
        found += asyncio.run(on_postgresql(server.url))
    with PrivateMariaDB(in_memory(sizes()[-1])) as database:
        found += asyncio.run(on_mariadb(database))
    return found
