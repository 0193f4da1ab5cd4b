"""Effects counted by SQL on the drivers of servers, whose transactions see what they saw first."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import asyncmy
import asyncpg
import psycopg
import pymysql
import pytest

from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer
from twicesafe.testing import EffectsError, OneEffect

SQL = "SELECT count(*) FROM charges"
TABLE = "CREATE TABLE charges (id integer)"
CHARGE = "INSERT INTO charges VALUES (1)"


async def charged(connection: Any, charge: Any, times: int) -> None:
    """One intent with so many effects."""
    async with OneEffect(SQL, connection):
        for _ in range(times):
            charge()


async def counted(connection: Any, charge: Any) -> None:
    """One effect, then two: on a connection that looks four times."""
    await charged(connection, charge, 1)
    with pytest.raises(EffectsError, match="1 intent had 2 effects"):
        await charged(connection, charge, 2)


def test_postgresql(postgresql_server: PostgresqlServer) -> None:
    """R42: psycopg's connections of both kinds, at REPEATABLE READ, and asyncpg's see what others committed."""
    dsn = postgresql_server.create_database()

    async def trial(charge: Any) -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await counted(connection, charge)
        other = await asyncpg.connect(dsn)
        await counted(other, charge)
        await other.close()

    with psycopg.connect(dsn, autocommit=True) as admin, psycopg.connect(dsn) as connection:
        admin.execute(TABLE)
        asyncio.run(trial(lambda: admin.execute(CHARGE)))
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with OneEffect(SQL, connection):
            admin.execute(CHARGE)
        with pytest.raises(EffectsError, match="effects: 7 before, 7 after"), OneEffect(SQL, connection):
            connection.execute("SELECT 1")


def test_mariadb(mariadb_server: MariadbServer) -> None:
    """R42: the same for PyMySQL, with rows that are dicts, and for asyncmy, at the isolation they come with."""
    where: dict[str, Any] = {"host": "127.0.0.1", "port": mariadb_server.port, "user": "twicesafe"}
    where["database"] = mariadb_server.create_database()

    async def trial(charge: Any) -> None:
        async with asyncmy.connect(**where) as connection:
            await counted(connection, charge)

    with (
        closing(mariadb_server.connect(where["database"])) as admin,
        closing(pymysql.connect(cursorclass=pymysql.cursors.DictCursor, **where)) as connection,
        admin.cursor() as cursor,
    ):
        cursor.execute(TABLE)
        asyncio.run(trial(lambda: cursor.execute(CHARGE)))
        with OneEffect(SQL, connection):
            cursor.execute(CHARGE)
        with pytest.raises(EffectsError, match="effects: 4 before, 4 after"), OneEffect(SQL, connection):
            connection.ping()
