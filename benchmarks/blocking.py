"""Stores for threads, 8 of them: psycopg and PyMySQL both ways, and transactions of SQLAlchemy and Django.

As in drivers.py the floor of each sends the very statements that twicesafe sends, through the same library, from code
that decides nothing. All servers write every commit to the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Barrier
from typing import Any

import django
import pymysql
import sqlalchemy
from django.conf import settings
from django.db import connection as django_connection
from django.db import transaction as django_transaction
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool
from pymysql.constants import CLIENT
from sqlalchemy.orm import sessionmaker

from benchmarks.drivers import ROUNDS, Written, fresh, together, wish
from benchmarks.measure import Row, Subject, interleaved, rows
from benchmarks.postgresql import ANSWER, LINES
from twicesafe import Effects, Policy
from twicesafe.core.claims import Claimed
from twicesafe.core.record import StoredResponse
from twicesafe.stores import mysql, postgresql
from twicesafe.stores.contract import Store
from twicesafe.stores.django import DjangoStore
from twicesafe.stores.psycopg import PsycopgStore
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.sql.advisory import lock_keys
from twicesafe.stores.sql.mysql_leased import lock
from twicesafe.stores.sql.statements import Placeholder, inlined
from twicesafe.stores.sqlalchemy import SqlalchemyStore
from twicesafe.storm.mariadb import PrivateMariaDB
from twicesafe.storm.postgresql import PrivatePostgreSQL

THREADS = 8
TIMES = 600
INSERT = "INSERT INTO ledger (account, amount) VALUES (7, 100)"

Once = Callable[[], None]
Effect = Callable[[Any], Any]


# --- the store --------------------------------------------------------------------------------------------------------


def leased(store: Store) -> Once:
    """Claim and complete on the store."""
    policy, response = Policy(effects=Effects.KEYED), StoredResponse(201, LINES, ANSWER)

    def once() -> None:
        won = store.claim(wish(policy))
        assert type(won) is Claimed
        store.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once


def transactional(store: Store, effect: Effect) -> Once:
    """Claim, effect and answer in one transaction of the store."""
    policy, response = Policy(effects=Effects.TRANSACTIONAL), StoredResponse(201, LINES, ANSWER)

    def once() -> None:
        with store.transaction() as transaction:
            won = transaction.claim(wish(policy))
            assert type(won) is Claimed
            effect(transaction.connection)
            transaction.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once


# --- by hand ----------------------------------------------------------------------------------------------------------


def psycopg_leased(pool: ConnectionPool[Any]) -> Once:
    """The two statements by psycopg."""
    sql = postgresql.queries(Placeholder.PERCENT, None)
    claim, complete = Written(sql, "claim"), Written(sql, "complete")

    def once() -> None:
        mine = fresh()
        for written in (claim, complete):
            with pool.connection() as connection:
                assert connection.execute(written.text, written.values(mine), binary=True).fetchall()

    return once


def psycopg_transactional(pool: ConnectionPool[Any]) -> Once:
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


def joined(opened: Callable[[], Any], perform: Callable[[Any, str, Any], Any], effect: Effect) -> Once:
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


def pymysql_leased(pool: Pool) -> Once:
    """The two statements by PyMySQL."""
    sql = mysql.queries(None)
    claim, complete = Written(sql, "claim"), Written(sql, "complete")

    def once() -> None:
        mine = fresh()
        for written in (claim, complete):
            with pool.cursor() as cursor:
                assert cursor.execute(written.text, written.values(mine)) == 1

    return once


def pymysql_transactional(pool: Pool) -> Once:
    """Lock, look and begin in one round trip, effect, record and commit in another."""
    sql = mysql.queries(None)
    look, record = Written(sql, "look"), Written(sql, "record")
    opening = together(look.text, sql("begin").text, sql("mark").text)
    closing = together(sql("still_open").text, record.text, sql("commit").text, sql("unlock").text)

    def once() -> None:
        mine = fresh() | {"effects": "transactional"}
        locking = lock(sql, mine["digest"], 0)
        with pool.cursor() as cursor:
            cursor.execute(together(locking.text, opening), [*locking.parameters, *look.values(mine)])
            cursor.nextset()
            assert len(cursor.fetchall()) == 1
            while cursor.nextset():
                pass
            cursor.execute(INSERT)
            cursor.execute(closing, record.values(mine))
            while cursor.nextset():
                pass

    return once


# --- measuring --------------------------------------------------------------------------------------------------------


def compared(case: str, threads: ThreadPoolExecutor, *, floor: Once, store: Once) -> list[Row]:
    """Rates, and their ratios to the floor's."""

    def subject(name: str, once: Once) -> Subject:
        async def run(n: int) -> float:
            left = iter(range(n))

            def work() -> None:
                for _ in left:
                    once()

            began = time.perf_counter()
            for working in [threads.submit(work) for _ in range(THREADS)]:
                working.result()
            return n / (time.perf_counter() - began)

        return Subject(name, run)

    subjects = [subject("floor", floor), subject("twicesafe", store)]
    asyncio.run(interleaved(subjects, rounds=ROUNDS, times=TIMES))
    return rows(f"{case}, {THREADS} threads", "per s", subjects, lambda rate: rate)


def on_postgresql(url: str, threads: ThreadPoolExecutor) -> list[Row]:
    """psycopg both ways; SQLAlchemy and Django."""
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
    store.apply_schema()
    statement = sqlalchemy.text(INSERT)
    pool = ConnectionPool(url, min_size=THREADS, max_size=THREADS, kwargs={"autocommit": True}, open=True)
    try:
        with pool.connection() as connection:
            connection.execute("CREATE TABLE ledger (id bigserial PRIMARY KEY, account bigint, amount bigint)")
        found = compared("psycopg, leased", threads, floor=psycopg_leased(pool), store=leased(store))
        found += compared(
            "psycopg, transactional",
            threads,
            floor=psycopg_transactional(pool),
            store=transactional(store, lambda connection: connection.execute(INSERT)),
        )
        found += compared(
            "SQLAlchemy, transactional",
            threads,
            floor=joined(sessions.begin, in_session, lambda session: session.execute(statement)),
            store=transactional(SqlalchemyStore(sessions), lambda session: session.execute(statement)),
        )
        found += compared(
            "Django, transactional",
            threads,
            floor=joined(atomic, in_atomic, django_effect),
            store=transactional(DjangoStore(), django_effect),
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


def on_mariadb(server: PrivateMariaDB, threads: ThreadPoolExecutor) -> list[Row]:
    """PyMySQL both ways."""
    where = mysql.address(server.url)
    connections = [
        pymysql.connect(
            host=where.host, port=where.port, user=where.user, password=where.password, database=where.database,
            autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS,
        )
        for _ in range(THREADS)
    ]  # fmt: skip
    pool, store = Pool(connections), PymysqlStore(server.url, pool_size=THREADS)
    store.apply_schema()

    def effect(connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(INSERT)

    try:
        with pool.cursor() as cursor:
            cursor.execute("CREATE TABLE ledger (id bigint AUTO_INCREMENT PRIMARY KEY, account bigint, amount bigint)")
        found = compared("PyMySQL, leased", threads, floor=pymysql_leased(pool), store=leased(store))
        found += compared(
            "PyMySQL, transactional", threads, floor=pymysql_transactional(pool), store=transactional(store, effect)
        )
    finally:
        store.close()
        for connection in connections:
            connection.close()
    return found


def run() -> list[Row]:
    """The benchmark, on private servers with fsync on."""
    with ThreadPoolExecutor(THREADS) as threads:
        with PrivatePostgreSQL({"max_connections": str(6 * THREADS + 20)}) as server:
            found = on_postgresql(server.url, threads)
        with PrivateMariaDB({"max-connections": str(4 * THREADS)}) as database:
            found += on_mariadb(database, threads)
    return found
