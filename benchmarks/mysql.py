"""MariaDB by asyncmy with 32 tasks and by PyMySQL with 8 threads: leased and transactional, beside the same by hand.

The floor of each driver sends the very statements that twicesafe sends, grouped into as many round trips, from code
that decides nothing. `effect alone` is an application that protects nothing. Every commit is written to the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import asyncmy
import pymysql
from pymysql.constants import CLIENT

from benchmarks.load import BlockingOnce, Once, blocking_throughput, throughput
from benchmarks.measure import Row, Subject, interleaved, rates
from benchmarks.statements import (
    INSERT,
    Written,
    blocking_leased,
    blocking_transactional,
    fresh,
    leased,
    together,
    transactional,
)
from twicesafe.stores import mysql
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.sql.mysql_leased import lock
from twicesafe.storm.mariadb import PrivateMariaDB

TASKS = 32
THREADS = 8
ROUNDS = 7
TIMES = 1200
BLOCKING_TIMES = 600
LEDGER = "CREATE TABLE ledger (id bigint AUTO_INCREMENT PRIMARY KEY, account bigint, amount bigint)"


# --- by hand, asyncmy -------------------------------------------------------------------------------------------------


def asyncmy_leased(pool: Any) -> Once:
    """The two statements."""
    sql = mysql.queries(None)
    claim, complete = Written(sql, "claim"), Written(sql, "complete")

    async def once() -> None:
        mine = fresh()
        for written in (claim, complete):
            async with pool.acquire() as connection, connection.cursor() as cursor:
                await cursor.execute(written.text, written.values(mine))
                assert cursor.rowcount == 1

    return once


class Texts:
    """Lock, look and begin in one round trip, record and commit in another."""

    def __init__(self) -> None:
        self.sql = mysql.queries(None)
        self.look, self.record = Written(self.sql, "look"), Written(self.sql, "record")
        self.opening = together(self.look.text, self.sql("begin").text, self.sql("mark").text)
        ends = self.sql("commit").text, self.sql("unlock").text
        self.closing = together(self.sql("still_open").text, self.record.text, *ends)

    def begun(self, mine: dict[str, Any]) -> tuple[str, list[Any]]:
        """The first round trip."""
        locking = lock(self.sql, mine["digest"], 0)
        return together(locking.text, self.opening), [*locking.parameters, *self.look.values(mine)]


def asyncmy_transactional(pool: Any) -> Once:
    """A request's transaction."""
    texts = Texts()

    async def once() -> None:
        mine = fresh() | {"effects": "transactional"}
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(*texts.begun(mine))
            await cursor.nextset()
            assert len(await cursor.fetchall()) == 1
            while await cursor.nextset():
                pass
            await write(connection)
            await cursor.execute(texts.closing, texts.record.values(mine))
            while await cursor.nextset():
                pass

    return once


async def write(connection: Any) -> None:
    """An effect of one row."""
    async with connection.cursor() as cursor:
        await cursor.execute(INSERT)


def asyncmy_alone(pool: Any) -> Once:
    """What an application without protection sends."""

    async def once() -> None:
        async with pool.acquire() as connection:
            await connection.begin()
            await write(connection)
            await connection.commit()

    return once


# --- by hand, PyMySQL -------------------------------------------------------------------------------------------------


class Pool:
    """Connections for as many threads."""

    def __init__(self, connections: list[Any]) -> None:
        self._free: SimpleQueue[Any] = SimpleQueue()
        for connection in connections:
            self._free.put(connection)

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """On one of them."""
        connection = self._free.get()
        try:
            with connection.cursor() as cursor:
                yield cursor
        finally:
            self._free.put(connection)


def pymysql_leased(pool: Pool) -> BlockingOnce:
    """The two statements."""
    sql = mysql.queries(None)
    claim, complete = Written(sql, "claim"), Written(sql, "complete")

    def once() -> None:
        mine = fresh()
        for written in (claim, complete):
            with pool.cursor() as cursor:
                assert cursor.execute(written.text, written.values(mine)) == 1

    return once


def pymysql_transactional(pool: Pool) -> BlockingOnce:
    """A request's transaction."""
    texts = Texts()

    def once() -> None:
        mine = fresh() | {"effects": "transactional"}
        with pool.cursor() as cursor:
            cursor.execute(*texts.begun(mine))
            cursor.nextset()
            assert len(cursor.fetchall()) == 1
            while cursor.nextset():
                pass
            cursor.execute(INSERT)
            cursor.execute(texts.closing, texts.record.values(mine))
            while cursor.nextset():
                pass

    return once


def blocking_write(connection: Any) -> None:
    """An effect of one row."""
    with connection.cursor() as cursor:
        cursor.execute(INSERT)


# --- measuring --------------------------------------------------------------------------------------------------------


async def compared(case: str, **ways: Once) -> list[Row]:
    """Rates, and their ratios to the floor's."""
    subjects = [Subject(name.replace("_", " "), throughput(once, TASKS)) for name, once in ways.items()]
    await interleaved(subjects, rounds=ROUNDS, times=TIMES)
    return rates(f"asyncmy, {case}, {TASKS} tasks", subjects)


async def by_tasks(server: PrivateMariaDB) -> list[Row]:
    """asyncmy."""
    where = mysql.address(server.url)
    pool = await asyncmy.create_pool(
        host=where.host, port=where.port, user=where.user, password=where.password, database=where.database,
        minsize=TASKS, maxsize=TASKS, autocommit=True,
    )  # fmt: skip
    store = AsyncmyStore(server.url, pool_size=TASKS)
    try:
        await store.apply_schema()
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(LEDGER)
        return [
            *await compared("leased", floor=asyncmy_leased(pool), twicesafe=leased(store)),
            *await compared(
                "transactional",
                effect_alone=asyncmy_alone(pool),
                floor=asyncmy_transactional(pool),
                twicesafe=transactional(store, write),
            ),
        ]
    finally:
        await store.aclose()
        pool.close()
        await pool.wait_closed()


def by_threads(server: PrivateMariaDB) -> list[Row]:
    """PyMySQL."""
    where = mysql.address(server.url)
    connections = [
        pymysql.connect(
            host=where.host, port=where.port, user=where.user, password=where.password, database=where.database,
            autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS,
        )
        for _ in range(THREADS)
    ]  # fmt: skip
    pool, store = Pool(connections), PymysqlStore(server.url, pool_size=THREADS)
    found: list[Row] = []
    with ThreadPoolExecutor(THREADS) as threads:
        for case, floor, ours in (
            ("leased", pymysql_leased(pool), blocking_leased(store)),
            ("transactional", pymysql_transactional(pool), blocking_transactional(store, blocking_write)),
        ):
            subjects = [
                Subject("floor", blocking_throughput(floor, threads, THREADS)),
                Subject("twicesafe", blocking_throughput(ours, threads, THREADS)),
            ]
            asyncio.run(interleaved(subjects, rounds=ROUNDS, times=BLOCKING_TIMES))
            found += rates(f"PyMySQL, {case}, {THREADS} threads", subjects)
    store.close()
    for connection in connections:
        connection.close()
    return found


def run() -> list[Row]:
    """The benchmark, on a private server with fsync on."""
    with PrivateMariaDB({"max-connections": str(4 * TASKS)}) as server:
        return [*asyncio.run(by_tasks(server)), *by_threads(server)]
