"""The file of statements: read, rendered, and prepared on real databases."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from string import ascii_lowercase
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.sql.schema import apply_schema
from twicesafe.stores.sql.statements import (
    Dialect,
    Placeholder,
    Queries,
    StatementsError,
    choose,
    inlined,
    parse,
    sources,
)
from twicesafe.stores.steps import Batch, Rows, Statement, Step, adrive, drive

NOT_PREPARABLE = {"begin", "commit", "rollback"}
"""PostgreSQL prepares no transaction control; every other test runs it."""


OF_MYSQL = ("START TRANSACTION", "SAVEPOINT", "RELEASE SAVEPOINT", "SET @", "DO ")


def queries(placeholder: Placeholder) -> Queries:
    """The dialect that goes with a placeholder."""
    return Queries(Dialect.SQLITE if placeholder is Placeholder.QUESTION_MARK else Dialect.POSTGRESQL, placeholder)


def test_each_statement_prepares_on_sqlite(tmp_path: Any) -> None:
    """R10, K: SQLite takes every statement of its dialect, against the tables of its schema."""
    sql = queries(Placeholder.QUESTION_MARK)
    connection = sqlite3.connect(tmp_path / "records.db", isolation_level=None)
    connection.create_function("twicesafe_now", 0, lambda: 1)

    def perform(step: Step) -> Rows:
        if isinstance(step, Batch):
            return [perform(one) for one in step.statements][-1]
        return connection.execute(step.text, step.parameters).fetchall()

    drive(apply_schema(sql), perform)
    prepared = set()
    for name, query in sql.all().items():
        connection.execute(f"EXPLAIN {query.text}", (None,) * query.text.count("?"))
        prepared.add(name)
    connection.close()
    assert prepared == {source.name for source in sources() if source.dialect in (None, Dialect.SQLITE)}


def test_each_statement_prepares_on_postgresql(postgresql_server: PostgresqlServer) -> None:
    """R10, K: PostgreSQL takes every statement of its dialect and finds a type for each parameter, for both drivers."""
    dsn = postgresql_server.create_database()

    async def prepare_all() -> set[str]:
        connection = await asyncpg.connect(dsn)

        async def perform(step: Step) -> Rows:
            if isinstance(step, Batch):
                return [await perform(one) for one in step.statements][-1]
            return await connection.fetch(step.text, *step.parameters)  # type: ignore[no-any-return]

        sql = queries(Placeholder.NUMBER)
        await adrive(apply_schema(sql), perform)
        for name, query in sql.all().items():
            if name not in NOT_PREPARABLE:
                statement = await connection.prepare(query.text)
                types = {str(parameter.name) for parameter in statement.get_parameters()}
                assert types <= {"bytea", "bytea[]", "text", "int8", "int4"}, name
        await connection.close()
        return set(sql.all())

    prepared = asyncio.run(prepare_all())
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name, query in queries(Placeholder.PERCENT).all().items():
            if name not in NOT_PREPARABLE:
                text = query.text
                for number in range(1, text.count("%s") + 1):
                    text = text.replace("%s", f"${number}", 1)
                connection.execute(f"PREPARE probe AS {text}")  # type: ignore[call-overload]
                connection.execute("DEALLOCATE probe")
    assert prepared == {source.name for source in sources() if source.dialect in (None, Dialect.POSTGRESQL)}


def test_each_statement_prepares_on_mysql(mariadb_server: MariadbServer) -> None:
    """R10, K: MariaDB takes every statement of its dialect, against the tables of its schema."""
    store = PymysqlStore(mariadb_server.dsn(mariadb_server.create_database()))
    store.apply_schema()
    sql = Queries(Dialect.MYSQL, Placeholder.QUESTION_MARK)
    connection = store._connections.acquire()
    cursor = connection.cursor()
    for query in sql.all().values():
        text = query.text.replace("'", "''")
        cursor.execute(f"PREPARE probe FROM '{text}'")
        cursor.execute("DEALLOCATE PREPARE probe")
    store._connections.release(connection)
    store.close()
    assert set(sql.all()) == {source.name for source in sources() if source.dialect in (None, Dialect.MYSQL)}


def test_all_dialects_ask_for_the_same_parameters() -> None:
    """R10: where a dialect has a form of its own, it takes no parameter that the others have not."""
    sqlite, postgresql, mysql = ({s.name: s.text for s in choose(sources(), dialect)} for dialect in Dialect)
    wanted = re.compile(r"(?<!:):([a-z_]+)")
    for name in sqlite.keys() & postgresql.keys():
        assert set(wanted.findall(sqlite[name])) == set(wanted.findall(postgresql[name])), name
    for name in (sqlite.keys() & mysql.keys()) - {"record"}:
        assert set(wanted.findall(sqlite[name])) == set(wanted.findall(mysql[name])), name
    # MySQL has two statements where the others have one.
    both = mysql["record"] + mysql["record_over"]
    assert set(wanted.findall(sqlite["record"])) == set(wanted.findall(both))


def test_no_statement_is_recognised_by_words() -> None:
    """K: what a statement does is told by how it begins, and the file begins them as the reader expects."""
    begin = ("SELECT", "INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT", "ROLLBACK", *OF_MYSQL)
    for dialect in Dialect:
        for source in choose(sources(), dialect):
            assert source.text.startswith(begin)
    sql = queries(Placeholder.NUMBER)
    assert {name for name, query in sql.all().items() if query.writes} == {
        "claim", "claim_expired", "take_over", "hold_stale", "settle_answered", "forget_stale", "renew",
        "start_answer", "complete", "release", "hold", "record", "settle", "advance", "reopen", "audit",
        "audit_outcome", "settle_not_done", "purge_keys", "purge_bodies", "schema_applied",
    }  # fmt: skip
    assert {name for name, query in sql.all().items() if not query.returns} == NOT_PREPARABLE | {
        "schema_applied", "audit", "audit_outcome",
    }  # fmt: skip


def test_parameters_are_spelled_as_the_driver_does() -> None:
    """R10: one that stands twice is given twice where places count, and once where numbers do."""
    text = "-- name: twice\nSELECT :a::bigint, :b, :a % 2;\n"
    given = {"a": 1, "b": 2}
    assert _rendered(text, Placeholder.QUESTION_MARK, given) == ("SELECT ?::bigint, ?, ? % 2", (1, 2, 1))
    assert _rendered(text, Placeholder.NUMBER, given) == ("SELECT $1::bigint, $2, $1 % 2", (1, 2))
    assert _rendered(text, Placeholder.PERCENT, given) == ("SELECT %s::bigint, %s, %s %% 2", (1, 2, 1))


def _rendered(text: str, placeholder: Placeholder, given: dict[str, int]) -> tuple[str, tuple[Any, ...]]:
    from twicesafe.stores.sql import statements

    (source,) = parse(text)
    query = statements._render(source, placeholder, {})
    return query.text, query.pick(given)


def test_a_missing_parameter_is_not_sent() -> None:
    """R10: a parameter that was forgotten is a KeyError here, not a NULL there."""
    with pytest.raises(KeyError):
        queries(Placeholder.NUMBER)("renew", digest=b"", owner=b"", epoch=1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-- name: one\nSELECT 1;\n-- name: one\nSELECT 1;\n", "stands twice"),
        ("-- name: one [sqlite]\nSELECT 1;\n-- name: one [sqlite]\nSELECT 1;\n", "stands twice"),
        ("SELECT 1;\n", "without a name"),
        ("-- name: One\nSELECT 1;\n", "not a statement's name"),
        ("-- name: one [oracle]\nSELECT 1;\n", "not a statement's name"),
        ("-- name: one\nSELECT 1\n", "one statement that ends in a semicolon"),
        ("-- name: one\nSELECT 1; SELECT 2;\n", "one statement that ends in a semicolon"),
        ("-- name: one\n-- name: two\nSELECT 2;\n", "one: must be one statement"),
    ],
)
def test_a_mistake_in_the_file_shows_when_it_is_read(text: str, complaint: str) -> None:
    """R10: nothing is rendered from a file that is not what its author meant."""
    with pytest.raises(StatementsError, match=complaint):
        parse(text)


def test_an_unknown_macro_is_refused() -> None:
    """R10: a macro that nobody defines is an error, not text in a statement."""
    with pytest.raises(StatementsError, match=r"one: unknown macro \{later\}"):
        _rendered("-- name: one\nSELECT {later};\n", Placeholder.NUMBER, {})


def test_only_whole_numbers_are_written_into_text() -> None:
    """R22: text and bytes never become part of a statement's text, whoever sends them."""
    statement = Statement("one", "SELECT $2, $1, $2", (-5, 7), writes=False, returns=True)
    assert inlined(statement) == "SELECT 7, -5, 7"
    assert inlined(statement._replace(text="SELECT %s, %s")) == "SELECT -5, 7"
    for value in ("5", b"5", True, None, 5.0):
        with pytest.raises(TypeError, match="'one'"):
            inlined(statement._replace(parameters=(1, value)))


def test_the_clock_is_the_databases() -> None:
    """I12, K: every dialect reads its own clock at the moment, never the transaction's start and never a parameter."""
    for dialect in Dialect:
        for source in choose(sources(), dialect):
            assert not re.search(r"\bnow\(\)|current_timestamp|:now\b", source.text, re.IGNORECASE)
    assert "clock_timestamp()" in queries(Placeholder.NUMBER).all()["claim"].text
    assert queries(Placeholder.QUESTION_MARK).all()["claim"].text.count("twicesafe_now()") == 5
    assert set(ascii_lowercase) & set(queries(Placeholder.NUMBER).all()["now"].text)
