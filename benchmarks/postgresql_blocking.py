"""psycopg both ways, and transactions of SQLAlchemy and Django, for threads: beside the same by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import django
import sqlalchemy
from django.conf import settings
from django.db import connection as django_connection
from django.db import transaction as django_transaction
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool
from sqlalchemy.orm import sessionmaker

from benchmarks.load import BlockingOnce, blocking_throughput
from benchmarks.measure import Row, Subject, interleaved, rates
from benchmarks.statements import INSERT, BlockingEffect, Written, blocking_leased, blocking_transactional, fresh
from twicesafe.stores import postgresql
from twicesafe.stores.django import DjangoStore
from twicesafe.stores.psycopg import PsycopgStore
from twicesafe.stores.sql.advisory import lock_keys
from twicesafe.stores.sql.statements import Placeholder, inlined
from twicesafe.stores.sqlalchemy import SqlalchemyStore

THREADS = 8
ROUNDS = 7
TIMES = 600


# --- by hand ----------------------------------------------------------------------------------------------------------


def psycopg_leased(pool: ConnectionPool[Any]) -> BlockingOnce:
    """The two statements by psycopg."""
    sql = postgresql.queries(Placeholder.PERCENT, None)
    claim, complete = Written(sql, "claim"), Written(sql, "complete")

    def once() -> None:
        mine = fresh()
        for written in (claim, complete):
            with pool.connection() as connection:
                assert connection.execute(written.text, written.values(mine), binary=True).fetchall()

    return once


def psycopg_transactional(pool: ConnectionPool[Any]) -> BlockingOnce:
    """Begin, lock and look in one round trip, effect, record, commit."""
    sql = postgresql.queries(Placeholder.PERCENT, None)
    begin, look, record = sql("begin").text, sql("look", digest=b"").text, Written(sql, "record")

    def once() -> None:
        mine = fresh() | {"effects": "transactional"}
        lock_it = inlined(sql("lock", **lock_keys(mine["digest"], mine["fingerprint"])))
        with pool.connection() as connection:
            with connection.pipeline():
                connection.execute(begin)
                connection.execute(lock_it)
                cursor = connection.execute(look, [mine["digest"]], binary=True)
            assert len(cursor.fetchall()) == 1
            connection.execute(INSERT)
            assert connection.execute(record.text, record.values(mine), binary=True).fetchall()
            connection.execute("COMMIT")

    return once


def joined(opened: Callable[[], Any], perform: Callable[[Any, str, Any], Any], effect: BlockingEffect) -> BlockingOnce:
    """Lock, look, effect and record in a transaction of some library's, each in a round trip of its own."""
    sql = postgresql.queries(Placeholder.PERCENT, None)
    look, record = Written(sql, "look"), Written(sql, "record")

    def once() -> None:
        mine = fresh() | {"effects": "transactional"}
        locking = sql("lock", **lock_keys(mine["digest"], mine["fingerprint"]))
        with opened() as transaction:
            perform(transaction, locking.text, locking.parameters)
            assert len(perform(transaction, look.text, look.values(mine))) == 1
            effect(transaction)
            assert perform(transaction, record.text, record.values(mine))

    return once


def in_session(session: Any, text: str, values: Any) -> Any:
    """By SQLAlchemy."""
    return session.connection().exec_driver_sql(text, tuple(values)).fetchall()


def in_atomic(wrapper: Any, text: str, values: Any) -> Any:
    """By Django."""
    with wrapper.cursor() as cursor:
        cursor.execute(text, values)
        return cursor.fetchall()


@contextmanager
def atomic() -> Iterator[Any]:
    """Django's transaction, and its connection."""
    with django_transaction.atomic(durable=True):
        yield django_connection


def django_effect(wrapper: Any) -> None:
    """A row, by Django."""
    with wrapper.cursor() as cursor:
        cursor.execute(INSERT)


# --- measuring --------------------------------------------------------------------------------------------------------


def compared(case: str, threads: ThreadPoolExecutor, *, floor: BlockingOnce, store: BlockingOnce) -> list[Row]:
    """Rates, and their ratios to the floor's."""
    subjects = [
        Subject("floor", blocking_throughput(floor, threads, THREADS)),
        Subject("twicesafe", blocking_throughput(store, threads, THREADS)),
    ]
    asyncio.run(interleaved(subjects, rounds=ROUNDS, times=TIMES))
    return rates(f"{case}, {THREADS} threads", subjects)


def measured(url: str, threads: ThreadPoolExecutor) -> list[Row]:
    """All cases, on a database with twicesafe's tables and the ledger."""
    where = conninfo_to_dict(url)
    engine = sqlalchemy.create_engine(
        url.replace("postgresql://", "postgresql+psycopg://", 1), pool_size=THREADS, max_overflow=0
    )
    database = {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": None, "NAME": where["dbname"]}
    database |= {"HOST": where["host"], "PORT": where["port"], "USER": where["user"], "PASSWORD": where["password"]}
    settings.configure(DATABASES={"default": database}, USE_TZ=True, INSTALLED_APPS=[])
    django.setup()
    sessions = sessionmaker(bind=engine)
    store = PsycopgStore(url, pool_size=THREADS)
    statement = sqlalchemy.text(INSERT)
    pool = ConnectionPool(url, min_size=THREADS, max_size=THREADS, kwargs={"autocommit": True}, open=True)
    try:
        found = compared("psycopg, leased", threads, floor=psycopg_leased(pool), store=blocking_leased(store))
        found += compared(
            "psycopg, transactional",
            threads,
            floor=psycopg_transactional(pool),
            store=blocking_transactional(store, lambda connection: connection.execute(INSERT)),
        )
        found += compared(
            "SQLAlchemy, transactional",
            threads,
            floor=joined(sessions.begin, in_session, lambda session: session.execute(statement)),
            store=blocking_transactional(SqlalchemyStore(sessions), lambda session: session.execute(statement)),
        )
        found += compared(
            "Django, transactional",
            threads,
            floor=joined(atomic, in_atomic, django_effect),
            store=blocking_transactional(DjangoStore(), django_effect),
        )
        everybody = Barrier(THREADS)

        def close_mine(_: int) -> None:
            everybody.wait()
            django_connection.close()

        list(threads.map(close_mine, range(THREADS)))
    finally:
        pool.close()
        store.close()
        engine.dispose()
    return found


def run(url: str) -> list[Row]:
    """Part of benchmarks.postgresql."""
    with ThreadPoolExecutor(THREADS) as threads:
        return measured(url, threads)
