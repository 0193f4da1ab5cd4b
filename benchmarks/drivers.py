"""Stores by other drivers than asyncpg's transactions, 32 tasks: leased and transactional, beside the same by hand.

The floor of each driver sends the very statements that twicesafe sends, grouped into as many round trips, over the
driver's pool as it comes, from code that decides nothing. `effect alone` is an application that protects nothing. All
servers write every commit to the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from os import urandom
from pathlib import Path
from typing import Any

import asyncmy
import asyncpg
from psycopg_pool import AsyncConnectionPool

from benchmarks.measure import Row, Subject, interleaved, rows
from benchmarks.postgresql import ANSWER, LINES, TASKS, throughput
from twicesafe import Effects, Policy
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.record import StoredResponse
from twicesafe.stores import mysql, postgresql
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.packing import pack_headers
from twicesafe.stores.psycopg import AsyncPsycopgStore
from twicesafe.stores.sql.advisory import lock_keys
from twicesafe.stores.sql.mysql_leased import lock
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries, inlined
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.storm.mariadb import PrivateMariaDB
from twicesafe.storm.postgresql import PrivatePostgreSQL

ROUNDS = 7
TIMES = 1200
DAY = 86_400_000_000
NAMES = (
    "digest", "scope", "operation", "key_hint", "fingerprint", "effects", "owner", "epoch", "created_at", "request",
    "lease_us", "key_us", "body_us", "purge_us", "status", "headers", "body",
    "seen_owner", "seen_epoch", "seen_state", "seen_lease_until", "seen_key_until",
)  # fmt: skip
FIXED: Mapping[str, Any] = dict.fromkeys(NAMES, 0) | {
    "scope": "user", "operation": "http", "key_hint": "…0001", "effects": "keyed", "epoch": 1, "request": None,
    "lease_us": 30_000_000, "key_us": DAY, "body_us": DAY, "purge_us": DAY, "status": 201,
    "headers": pack_headers(LINES), "body": ANSWER, "seen_owner": b"", "seen_state": "completed",
}  # fmt: skip

Once = Callable[[], Awaitable[None]]


class Written:
    """One statement: its text, and its parameters of one request."""

    def __init__(self, sql: Queries, name: str) -> None:
        statement = sql(name, **{name: name for name in NAMES})
        self.text = statement.text
        self._order = statement.parameters

    def values(self, mine: Mapping[str, Any]) -> list[Any]:
        """In the driver's order."""
        return [mine[name] for name in self._order]


def fresh() -> dict[str, Any]:
    """What differs from one request to the next."""
    return {**FIXED, "digest": urandom(32), "fingerprint": b"\x01" + urandom(32), "owner": urandom(16)}


# --- the store --------------------------------------------------------------------------------------------------------


def leased(store: AsyncStore) -> Once:
    """Claim and complete on the store."""
    policy, response = Policy(effects=Effects.KEYED), StoredResponse(201, LINES, ANSWER)

    async def once() -> None:
        won = await store.claim(wish(policy))
        assert type(won) is Claimed
        await store.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once


def transactional(store: AsyncStore, effect: Callable[[Any], Awaitable[None]]) -> Once:
    """Claim, effect and answer in one transaction of the store."""
    policy, response = Policy(effects=Effects.TRANSACTIONAL), StoredResponse(201, LINES, ANSWER)

    async def once() -> None:
        async with store.transaction() as transaction:
            won = await transaction.claim(wish(policy))
            assert type(won) is Claimed
            await effect(transaction.connection)
            await transaction.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once


def wish(policy: Policy) -> Claim:
    """A claim that nobody has made before."""
    return Claim(
        urandom(32), "user", "http", "…0001", GivenFingerprint(b"\x01" + urandom(32)), policy.effects, urandom(16),
        policy.lease_us, policy.key_us,
    )  # fmt: skip


# --- by hand ----------------------------------------------------------------------------------------------------------


def asyncpg_leased(pool: Any) -> Once:
    """The two statements by asyncpg."""
    sql = postgresql.queries(Placeholder.NUMBER, None)
    claim, complete = Written(sql, "claim"), Written(sql, "complete")

    async def once() -> None:
        mine = fresh()
        async with pool.acquire() as connection:
            assert await connection.fetch(claim.text, *claim.values(mine))
        async with pool.acquire() as connection:
            assert await connection.fetch(complete.text, *complete.values(mine))

    return once


def psycopg_leased(pool: Any) -> Once:
    """The two statements by psycopg."""
    sql = postgresql.queries(Placeholder.PERCENT, None)
    claim, complete = Written(sql, "claim"), Written(sql, "complete")

    async def once() -> None:
        mine = fresh()
        async with pool.connection() as connection:
            cursor = await connection.execute(claim.text, claim.values(mine), binary=True)
            assert await cursor.fetchall()
        async with pool.connection() as connection:
            cursor = await connection.execute(complete.text, complete.values(mine), binary=True)
            assert await cursor.fetchall()

    return once


def psycopg_transactional(pool: Any, effect: Callable[[Any], Awaitable[None]]) -> Once:
    """Begin, lock and look in one round trip, effect, record, commit."""
    sql = postgresql.queries(Placeholder.PERCENT, None)
    begin, look, record = sql("begin").text, sql("look", digest=b"").text, Written(sql, "record")

    async def once() -> None:
        mine = fresh() | {"effects": "transactional"}
        lock_it = inlined(sql("lock", **lock_keys(mine["digest"], mine["fingerprint"])))
        async with pool.connection() as connection:
            async with connection.pipeline():
                await connection.execute(begin)
                await connection.execute(lock_it)
                cursor = await connection.execute(look, [mine["digest"]], binary=True)
            assert len(await cursor.fetchall()) == 1
            await effect(connection)
            cursor = await connection.execute(record.text, record.values(mine), binary=True)
            assert await cursor.fetchall()
            await connection.execute("COMMIT")

    return once


def asyncmy_leased(pool: Any) -> Once:
    """The two statements by asyncmy."""
    sql = mysql.queries(None)
    claim, complete = Written(sql, "claim"), Written(sql, "complete")

    async def once() -> None:
        mine = fresh()
        for written in (claim, complete):
            async with pool.acquire() as connection, connection.cursor() as cursor:
                await cursor.execute(written.text, written.values(mine))
                assert cursor.rowcount == 1

    return once


def together(*texts: str) -> str:
    """Several statements in one round trip."""
    return "; ".join(texts)


def asyncmy_transactional(pool: Any, effect: Callable[[Any], Awaitable[None]]) -> Once:
    """Lock, look and begin in one round trip, effect, record and commit in another."""
    sql = mysql.queries(None)
    look, record = Written(sql, "look"), Written(sql, "record")
    opening = together(look.text, sql("begin").text, sql("mark").text)
    closing = together(sql("still_open").text, record.text, sql("commit").text, sql("unlock").text)

    async def once() -> None:
        mine = fresh() | {"effects": "transactional"}
        locking = lock(sql, mine["digest"], 0)
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(together(locking.text, opening), [*locking.parameters, *look.values(mine)])
            await cursor.nextset()
            assert len(await cursor.fetchall()) == 1
            while await cursor.nextset():
                pass
            await effect(connection)
            await cursor.execute(closing, record.values(mine))
            while await cursor.nextset():
                pass

    return once


async def _write(connection: Any) -> None:
    """An effect of one row, by psycopg."""
    await connection.execute("INSERT INTO ledger (account, amount) VALUES (%s, %s)", (7, 100))


async def _write_by_cursor(connection: Any) -> None:
    """An effect of one row, by asyncmy."""
    async with connection.cursor() as cursor:
        await cursor.execute("INSERT INTO ledger (account, amount) VALUES (%s, %s)", (7, 100))


def psycopg_alone(pool: Any) -> Once:
    """What an application without protection sends."""

    async def once() -> None:
        async with pool.connection() as connection:
            await connection.execute("BEGIN")
            await _write(connection)
            await connection.execute("COMMIT")

    return once


def asyncmy_alone(pool: Any) -> Once:
    """What an application without protection sends."""

    async def once() -> None:
        async with pool.acquire() as connection:
            await connection.begin()
            await _write_by_cursor(connection)
            await connection.commit()

    return once


def sqlite_leased(path: Path) -> Once:
    """The two statements on a connection of one's own, each committed by itself: what SQLite does for one writer."""
    sql = Queries(Dialect.SQLITE, Placeholder.QUESTION_MARK, now_sql="CAST(strftime('%s', 'now') AS INTEGER) * 1000000")
    claim, complete = Written(sql, "claim"), Written(sql, "complete")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")

    async def once() -> None:
        mine = fresh()
        connection.execute(claim.text, claim.values(mine)).fetchall()
        connection.execute(complete.text, complete.values(mine)).fetchall()

    return once


# --- measuring --------------------------------------------------------------------------------------------------------


async def compared(case: str, subjects: list[Subject]) -> list[Row]:
    """Rates, and their ratios to the floor's."""
    await interleaved(subjects, rounds=ROUNDS, times=TIMES)
    rates = [Subject(subject.name, subject.run, [1 / seconds for seconds in subject.figures]) for subject in subjects]
    return rows(case, "per s", rates, lambda rate: rate)


def subjects_of(**ways: Once) -> list[Subject]:
    """What is measured against each other."""
    return [Subject(name.replace("_", " "), throughput(once)) for name, once in ways.items()]


async def on_postgresql(url: str) -> list[Row]:
    """asyncpg leased; psycopg both ways."""
    found: list[Row] = []
    by_asyncpg = await asyncpg.create_pool(url, min_size=TASKS, max_size=TASKS)
    by_psycopg = AsyncConnectionPool(url, min_size=TASKS, max_size=TASKS, kwargs={"autocommit": True}, open=False)
    await by_psycopg.open()
    one, other = AsyncpgStore(url, pool_size=TASKS), AsyncPsycopgStore(url, pool_size=TASKS)
    try:
        await one.apply_schema()
        await by_asyncpg.execute(
            "CREATE TABLE ledger (id bigserial PRIMARY KEY, account bigint NOT NULL, amount bigint NOT NULL)"
        )
        found += await compared("asyncpg, leased", subjects_of(floor=asyncpg_leased(by_asyncpg), twicesafe=leased(one)))
        found += await compared(
            "psycopg, leased", subjects_of(floor=psycopg_leased(by_psycopg), twicesafe=leased(other))
        )
        found += await compared(
            "psycopg, transactional",
            subjects_of(
                effect_alone=psycopg_alone(by_psycopg),
                floor=psycopg_transactional(by_psycopg, _write),
                twicesafe=transactional(other, _write),
            ),
        )
    finally:
        await one.aclose()
        await other.aclose()
        await by_asyncpg.close()
        await by_psycopg.close()
    return found


async def on_mariadb(server: PrivateMariaDB) -> list[Row]:
    """asyncmy both ways."""
    found: list[Row] = []
    where = mysql.address(server.url)
    pool = await asyncmy.create_pool(
        host=where.host, port=where.port, user=where.user, password=where.password, database=where.database,
        minsize=TASKS, maxsize=TASKS, autocommit=True,
    )  # fmt: skip
    store = AsyncmyStore(server.url, pool_size=TASKS)
    try:
        await store.apply_schema()
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(
                "CREATE TABLE ledger (id bigint AUTO_INCREMENT PRIMARY KEY, account bigint, amount bigint)"
            )
        found += await compared("asyncmy, leased", subjects_of(floor=asyncmy_leased(pool), twicesafe=leased(store)))
        found += await compared(
            "asyncmy, transactional",
            subjects_of(
                effect_alone=asyncmy_alone(pool),
                floor=asyncmy_transactional(pool, _write_by_cursor),
                twicesafe=transactional(store, _write_by_cursor),
            ),
        )
    finally:
        await store.aclose()
        pool.close()
        await pool.wait_closed()
    return found


async def on_sqlite(folder: Path) -> list[Row]:
    """SQLite has one writer; the floor is it alone, without anybody to wait for."""
    store = AsyncSqliteStore(folder / "twicesafe.db")
    try:
        await store.apply_schema()
        return await compared(
            "sqlite, leased", subjects_of(floor=sqlite_leased(folder / "twicesafe.db"), twicesafe=leased(store))
        )
    finally:
        await store.aclose()


def run() -> list[Row]:
    """The benchmark, on private servers with fsync on."""
    with PrivatePostgreSQL({"max_connections": str(4 * TASKS + 20)}) as server:
        found = asyncio.run(on_postgresql(server.url))
    with PrivateMariaDB({"max-connections": str(4 * TASKS)}) as database:
        found += asyncio.run(on_mariadb(database))
    with tempfile.TemporaryDirectory() as folder:
        found += asyncio.run(on_sqlite(Path(folder)))
    return found
