"""`twicesafe schema`: the tables are made, printed, and refused where they are another release's."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg

from tests.cli.running import twicesafe, twicesafe_within
from tests.servers.dynamodb import DynamodbServer
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer


def tables_in(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def test_applying_makes_the_tables_and_again_changes_nothing(tmp_path: Path) -> None:
    """House: a missing file is made with its tables; a second run leaves everything as it is."""
    file = tmp_path / "shop.db"
    first = twicesafe("schema", "apply", "--store", f"sqlite:///{file}")
    made = tables_in(file)
    second = twicesafe_within("schema", "apply", "--store", f"sqlite:///{file}")
    assert {name for name in made if name.startswith("twicesafe")} >= {"twicesafe_schema"}
    assert tables_in(file) == made
    assert (first.status, second.status) == (0, 0)
    assert first.out == second.out
    assert str(file) in first.out


def test_what_is_printed_makes_the_same_tables(tmp_path: Path) -> None:
    """House: the printed script leaves what applying leaves, and applying then finds nothing to do."""
    applied, scripted = tmp_path / "applied.db", tmp_path / "scripted.db"
    twicesafe_within("schema", "apply", "--store", f"sqlite:///{applied}")
    with closing(sqlite3.connect(scripted)) as connection:
        connection.executescript(twicesafe("schema", "print", "--store", "sqlite").out)
    assert tables_in(scripted) == tables_in(applied)
    assert twicesafe_within("schema", "apply", "--store", f"sqlite:///{scripted}").status == 0


def test_tables_of_a_newer_release_are_refused(tmp_path: Path) -> None:
    """House: tables that a newer release made are left alone, and one line says to upgrade."""
    file = tmp_path / "shop.db"
    twicesafe_within("schema", "apply", "--store", f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO twicesafe_schema (version, applied_at) VALUES (9999, 0)")
    ran = twicesafe_within("schema", "apply", "--store", f"sqlite:///{file}")
    assert (ran.status, ran.out) == (2, "")
    assert "9999" in ran.err and "upgrade twicesafe" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_json_says_which_store_and_which_version(tmp_path: Path) -> None:
    """House: for machines, one object."""
    ran = twicesafe_within("schema", "apply", "--store", f"sqlite:///{tmp_path}/shop.db", "--json")
    assert ran.status == 0
    assert ran.json == {"store": f"sqlite:///{tmp_path}/shop.db", "dialect": "sqlite", "version": ran.json["version"]}
    assert ran.json["version"] >= 1


def test_postgresql(postgresql_server: PostgresqlServer) -> None:
    """House: on PostgreSQL the same; the printed script can be applied by other means."""
    dsn, other = postgresql_server.create_database(), postgresql_server.create_database()
    ran = twicesafe_within("schema", "apply", "--store", dsn, "--json")
    printed = twicesafe_within("schema", "print", "--store", other)

    async def tables() -> list[set[str]]:
        found = []
        for database, script in ((dsn, None), (other, printed.out)):
            connection = await asyncpg.connect(database)
            if script is not None:
                await connection.execute(script)
            rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            found.append({row["tablename"] for row in rows})
            await connection.close()
        return found

    applied, scripted = asyncio.run(tables())
    assert "twicesafe_schema" in applied
    assert applied == scripted
    assert (ran.status, ran.json["dialect"]) == (0, "postgresql")


def test_mysql(mariadb_server: MariadbServer) -> None:
    """House: on MySQL the same; applied again nothing is changed."""
    applied, scripted = mariadb_server.create_database(), mariadb_server.create_database()
    ran = [twicesafe_within("schema", "apply", "--store", mariadb_server.dsn(applied), "--json") for _ in range(2)]
    printed = twicesafe_within("schema", "print", "--store", "mysql")
    with mariadb_server.connect(scripted) as connection, connection.cursor() as cursor:
        cursor.execute(printed.out)
        while cursor.nextset():
            pass
        found = []
        for name in (applied, scripted):
            columns = "column_name, column_type, collation_name, is_nullable, column_key"
            cursor.execute(
                f"SELECT table_name, {columns} FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2",
                [name],
            )
            found.append(cursor.fetchall())
    assert ("twicesafe_records", "digest", "binary(32)", None, "NO", "PRI") in found[0]
    assert found[0] == found[1]
    assert [(one.status, one.json["dialect"]) for one in ran] == [(0, "mysql"), (0, "mysql")]
    assert twicesafe_within("schema", "apply", "--store", mariadb_server.dsn(scripted)).status == 0


def test_dynamodb(dynamodb_server: DynamodbServer) -> None:
    """House: a table of DynamoDB is made, and made again without a change; it has no script to print."""
    url = dynamodb_server.url(dynamodb_server.new_table())
    first, second = [twicesafe_within("schema", "apply", "--store", url, "--json") for _ in range(2)]
    assert first.json == second.json == {"store": url, "dialect": "dynamodb", "version": None}
    assert (first.status, second.status) == (0, 0)
    assert twicesafe_within("schema", "print", "--store", url).status == 2
