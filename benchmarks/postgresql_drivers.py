"""asyncpg leased, psycopg both ways and SQLAlchemy's sessions, for asyncio: beside the same by hand.

`effect alone` is an application that protects nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import sqlalchemy
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from benchmarks.load import Once, throughput
from benchmarks.measure import Row, Subject, interleaved, rates
from benchmarks.statements import INSERT, Effect, Written, fresh, leased, transactional
from twicesafe.stores import postgresql
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.psycopg import AsyncPsycopgStore
from twicesafe.stores.sql.advisory import lock_keys
from twicesafe.stores.sql.statements import Placeholder, inlined
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore

TASKS = 32
ROUNDS = 7
TIMES = 1200


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
        for written in (claim, complete):
            async with pool.connection() as connection:
                cursor = await connection.execute(written.text, written.values(mine), binary=True)
                assert await cursor.fetchall()

    return once


def psycopg_transactional(pool: Any, effect: Effect) -> Once:
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


def sqlalchemy_transactional(sessions: Any, effect: Effect) -> Once:
    """Lock, look, effect and record in a session's transaction, each in a round trip of its own."""
    sql = postgresql.queries(Placeholder.NUMBER, None)
    look, record = Written(sql, "look"), Written(sql, "record")

    async def perform(session: Any, text: str, values: Any) -> Any:
        connection = await session.connection()
        return (await connection.exec_driver_sql(text, tuple(values))).fetchall()

    async def once() -> None:
        mine = fresh() | {"effects": "transactional"}
        locking = sql("lock", **lock_keys(mine["digest"], mine["fingerprint"]))
        async with sessions.begin() as session:
            await perform(session, locking.text, locking.parameters)
            assert len(await perform(session, look.text, look.values(mine))) == 1
            await effect(session)
            assert await perform(session, record.text, record.values(mine))

    return once


async def _write(connection: Any) -> None:
    """An effect of one row, by psycopg."""
    await connection.execute(INSERT)


STATEMENT = sqlalchemy.text(INSERT)


async def _write_in_session(session: Any) -> None:
    """An effect of one row, by SQLAlchemy."""
    await session.execute(STATEMENT)


def psycopg_alone(pool: Any) -> Once:
    """What an application without protection sends."""

    async def once() -> None:
        async with pool.connection() as connection:
            await connection.execute("BEGIN")
            await _write(connection)
            await connection.execute("COMMIT")

    return once


def sqlalchemy_alone(sessions: Any) -> Once:
    """What an application without protection sends."""

    async def once() -> None:
        async with sessions.begin() as session:
            await _write_in_session(session)

    return once


# --- measuring --------------------------------------------------------------------------------------------------------


async def compared(case: str, **ways: Once) -> list[Row]:
    """Rates, and their ratios to the floor's."""
    subjects = [Subject(name.replace("_", " "), throughput(once, TASKS)) for name, once in ways.items()]
    await interleaved(subjects, rounds=ROUNDS, times=TIMES)
    return rates(f"{case}, {TASKS} tasks", subjects)


async def measured(url: str) -> list[Row]:
    """All cases, on a database with twicesafe's tables and the ledger."""
    by_asyncpg = await asyncpg.create_pool(url, min_size=TASKS, max_size=TASKS)
    by_psycopg = AsyncConnectionPool(url, min_size=TASKS, max_size=TASKS, kwargs={"autocommit": True}, open=False)
    await by_psycopg.open()
    engine = create_async_engine(
        url.replace("postgresql://", "postgresql+asyncpg://", 1), pool_size=TASKS, max_overflow=0
    )
    sessions = async_sessionmaker(engine)
    one, other = AsyncpgStore(url, pool_size=TASKS), AsyncPsycopgStore(url, pool_size=TASKS)
    joined = AsyncSqlalchemyStore(sessions)
    try:
        return [
            *await compared("asyncpg, leased", floor=asyncpg_leased(by_asyncpg), twicesafe=leased(one)),
            *await compared("psycopg, leased", floor=psycopg_leased(by_psycopg), twicesafe=leased(other)),
            *await compared(
                "psycopg, transactional",
                effect_alone=psycopg_alone(by_psycopg),
                floor=psycopg_transactional(by_psycopg, _write),
                twicesafe=transactional(other, _write),
            ),
            *await compared(
                "SQLAlchemy on asyncpg, transactional",
                effect_alone=sqlalchemy_alone(sessions),
                floor=sqlalchemy_transactional(sessions, _write_in_session),
                twicesafe=transactional(joined, _write_in_session),
            ),
        ]
    finally:
        await one.aclose()
        await other.aclose()
        await joined.aclose()
        await by_asyncpg.close()
        await by_psycopg.close()
        await engine.dispose()


def run(url: str) -> list[Row]:
    """Part of benchmarks.postgresql."""
    return asyncio.run(measured(url))
