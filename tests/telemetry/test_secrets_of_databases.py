"""What live databases say of rows, and of those who may not come in, is repeated to nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool
from sqlalchemy import create_engine, text

from tests.planted import told
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer
from tests.servers.redis import RedisServer
from tests.shells.probe import Probe, post
from tests.stores import mysql_kinds, postgresql_kinds
from tests.telemetry.searched import ANSWER, BODY, KEY, MARK, PASSWORD, Searched, planted
from twicesafe import PUBLIC
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.errors import CommitRefusedError, StoreError, TwicesafeError
from twicesafe.once import AsyncOnce, Once, current
from twicesafe.stores.sqlalchemy import SqlalchemyStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.stores.urls import open_async_store, open_store
from twicesafe.testing.threads import StoreInThreads

CARD = planted("card")

TABLES_OF_POSTGRESQL = """
CREATE TABLE cards (number text PRIMARY KEY, later text, CHECK (number <> 'checked-' || later));
ALTER TABLE cards ADD CONSTRAINT once UNIQUE (later) DEFERRABLE INITIALLY DEFERRED;
CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.number LIKE 'raising%' THEN RAISE EXCEPTION 'card % of % is lost', NEW.number, NEW.later; END IF;
    RETURN NEW;
END $$;
CREATE CONSTRAINT TRIGGER tells AFTER INSERT ON cards DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION told();
"""
WRONG: list[tuple[str, str, str]] = [
    ("a row that is there", "INSERT INTO cards VALUES ('{0}', '1')", ""),
    ("no value of its type", "SELECT CAST('{0}' AS integer)", "sqlite"),
    ("what cannot be parsed", "SELECT FRM '{0}' '{0}'", ""),
    ("a check", "INSERT INTO cards VALUES ('checked-{0}', '{0}')", "mysql sqlite"),
    ("one that is seen at the end", "INSERT INTO cards VALUES ('2-{0}', '{0}')", "mysql sqlite"),
    ("a trigger at the end", "INSERT INTO cards VALUES ('raising-{0}', '3{0}')", "mysql sqlite"),
    ("a trigger", "INSERT INTO cards VALUES ('signal-{0}', '4')", "postgresql"),
]
"""What a handler asks for, and where it is no error, or there is no such thing."""
FIRST = f"INSERT INTO cards VALUES ('{CARD}', '{CARD}')"


def tried(searched: Searched, store: Any, run: Callable[..., Any], skip: str) -> list[str]:
    """Every statement of WRONG in a transactional function, blocking or not; which of them were refused."""
    refused = []
    asynchronous = hasattr(store, "aclose") and not isinstance(store, StoreInThreads)
    for number, (name, statement, where) in enumerate(WRONG):
        if skip in where.split():
            continue

        def pay(card: str, statement: str = statement) -> str:
            return run(current().connection, statement.format(CARD))

        async def apay(card: str, statement: str = statement) -> str:
            await run(current().connection, statement.format(CARD))
            return ANSWER

        once: Any = (AsyncOnce if asynchronous else Once)(store, scope=planted("tenant"), observer=searched)
        made = once.operation(key=lambda card: f"{KEY}-{number}", name="pay", effects="transactional")
        try:
            came = made(apay if asynchronous else pay)(BODY)
            if asynchronous:
                searched.loop.run_until_complete(came)  # type: ignore[attr-defined]
        except TwicesafeError as error:
            searched.error(name, error)
            refused.append(name)
        except Exception as error:
            # The application's own, by its driver: it holds what it holds, and nobody of ours has said it.
            refused.append(name if MARK in str(error) or skip == "sqlite" else f"{name}, without its value")
    return refused


@pytest.fixture
def loop(searched: Searched) -> Any:
    with asyncio.Runner() as runner:
        searched.loop = runner.get_loop()  # type: ignore[attr-defined]
        yield searched.loop  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", postgresql_kinds.KINDS)
def test_postgresql(searched: Searched, loop: Any, postgresql_server: PostgresqlServer, kind: str) -> None:
    """R22: by every driver, what DETAIL, CONTEXT and a trigger's words say of rows is in no event, error or log."""
    place = postgresql_kinds.new_place(postgresql_server, kind)
    place.admin.execute(TABLES_OF_POSTGRESQL)
    place.admin.execute(FIRST)
    store = place.store()
    asynchronous = hasattr(store, "aclose")
    if asynchronous:
        loop.run_until_complete(store.apply_schema())
    else:
        store.apply_schema()
    refused = tried(searched, store, lambda connection, statement: connection.execute(statement), "postgresql")
    assert refused == [name for name, _, where in WRONG if "postgresql" not in where]
    assert place.value("SELECT count(*) FROM cards") == 1
    if asynchronous:
        loop.run_until_complete(store.aclose())
    else:
        store.close()
    place.leave()


@pytest.mark.parametrize("kind", mysql_kinds.KINDS)
def test_mariadb(searched: Searched, loop: Any, mariadb_server: MariadbServer, kind: str) -> None:
    """R22: by both drivers, what stands between quotes in MySQL's errors is in no event, error or log."""
    place = mysql_kinds.new_place(mariadb_server, kind)
    place.value("CREATE TABLE cards (number VARCHAR(99) PRIMARY KEY, later VARCHAR(99))")
    place.value(
        "CREATE TRIGGER tells BEFORE INSERT ON cards FOR EACH ROW BEGIN DECLARE said TEXT; "
        "IF NEW.number LIKE 'signal%' THEN SET said = CONCAT('lost: ', NEW.number); "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = said; END IF; END"
    )
    place.value(FIRST)
    store = place.store()
    asynchronous = hasattr(store, "aclose")
    if asynchronous:
        loop.run_until_complete(store.apply_schema())
    else:
        store.apply_schema()
    refused = tried(searched, store, place.execute, "mysql")
    assert set(refused) >= {"a row that is there", "what cannot be parsed", "a trigger"}
    assert place.value("SELECT count(*) FROM cards") == 1
    if asynchronous:
        loop.run_until_complete(store.aclose())
    else:
        store.close()
    place.leave()


@pytest.mark.parametrize("make", [SqliteStore, AsyncSqliteStore])
def test_sqlite(searched: Searched, loop: Any, tmp_path: Path, make: Any) -> None:
    """R22: what SQLite refuses, at once and at the commit, is told without its values."""
    with closing(SqliteStore(tmp_path / "shop.db")) as first, first.transaction() as transaction:
        first.apply_schema()
        transaction.begin()
        transaction.connection.execute("CREATE TABLE cards (number TEXT PRIMARY KEY, later TEXT)")
        transaction.connection.execute(FIRST)
        transaction.commit()
    store = make(tmp_path / "shop.db")
    refused = tried(searched, store, lambda connection, statement: connection.execute(statement), "sqlite")
    assert set(refused) >= {"a row that is there", "what cannot be parsed"}
    if make is AsyncSqliteStore:
        loop.run_until_complete(store.aclose())
    else:
        store.close()


def test_sqlalchemy(searched: Searched, postgresql_server: PostgresqlServer) -> None:
    """R22: what a flush and a commit by an engine of the application's are refused for is told without its rows."""
    place = postgresql_kinds.new_place(postgresql_server, "psycopg")
    place.admin.execute(TABLES_OF_POSTGRESQL)
    place.admin.execute(FIRST)
    engine = create_engine(place.dsn_with().replace("postgresql://", "postgresql+psycopg://"))
    store = SqlalchemyStore(engine)
    store.apply_schema()
    refused = tried(searched, store, lambda connection, statement: connection.execute(text(statement)), "postgresql")
    assert refused == [name for name, _, where in WRONG if "postgresql" not in where]
    engine.dispose()
    place.leave()


def test_a_refused_commit_says_which_constraint(searched: Searched, postgresql_server: PostgresqlServer) -> None:
    """R22, R21: of a constraint that refuses a commit the name is told; of what a trigger says, where to look."""
    place = postgresql_kinds.new_place(postgresql_server, "psycopg")
    place.admin.execute(TABLES_OF_POSTGRESQL)
    place.admin.execute(FIRST)
    with closing(place.store()) as store:
        store.apply_schema()
        said = []
        for statement in (WRONG[4][1], WRONG[5][1]):
            with pytest.raises(CommitRefusedError) as refused:
                committed(store, statement.format(CARD))
            searched.error("a commit", refused.value)
            said.append(str(refused.value))
            assert MARK in str(refused.value.__cause__)
    assert '"once"' in said[0] and "its words may hold values" in said[1]
    place.leave()


def committed(store: Any, statement: str) -> None:
    with store.transaction() as transaction:
        transaction.begin()
        transaction.connection.execute(statement)
        transaction.commit()


def stranger_to(server: PostgresqlServer) -> str:
    """The URL of somebody whom this server asks for a password, with a wrong one."""
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        row = admin.execute("SHOW hba_file").fetchone()
        assert row is not None
        rules = Path(row[0])
        kept = rules.read_text("utf-8")
        rules.write_text(f"host all stranger 127.0.0.1/32 scram-sha-256\n{kept}", "utf-8")
        admin.execute("DROP ROLE IF EXISTS stranger")
        admin.execute("CREATE ROLE stranger LOGIN PASSWORD 'another'")
        admin.execute("SELECT pg_reload_conf()")
    url = server.dsn().replace("//twicesafe@", f"//stranger:{PASSWORD}@")
    while True:
        # It is read anew in a moment.
        with suppress(psycopg.OperationalError):
            psycopg.connect(url).close()
            continue
        return url


@pytest.mark.parametrize("server", ["postgresql", "mysql", "redis"])
def test_a_wrong_password(
    searched: Searched, server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R22, R42: who is not let in by a server that is there learns so without the password, blocking and not."""
    wait = ConnectionPool.getconn
    monkeypatch.setattr(ConnectionPool, "getconn", lambda pool, timeout: wait(pool, 1.0))
    if server == "postgresql":
        url = stranger_to(request.getfixturevalue("postgresql_server"))
    elif server == "mysql":
        mariadb: MariadbServer = request.getfixturevalue("mariadb_server")
        url = f"mysql://twicesafe:{PASSWORD}@127.0.0.1:{mariadb.port}/mysql"
    else:
        redis: RedisServer = request.getfixturevalue("redis_server")
        url = f"redis://stranger:{PASSWORD}@127.0.0.1:{redis.port}/0"
    with pytest.raises(StoreError) as refused, closing(open_store(url)) as store:
        store.check_schema()
    searched.error("a store", refused.value)

    async def trial() -> None:
        store = open_async_store(url)
        try:
            app = IdempotencyMiddleware(Probe(), store, scope=PUBLIC, observer=searched)
            reply = await post(app, key=KEY, body=BODY.encode())
            assert reply.status == 503
            searched.problem("a request", reply)
        finally:
            await store.aclose()

    asyncio.run(trial())


def test_the_search_would_find_a_row(searched: Searched, postgresql_server: PostgresqlServer) -> None:
    """R22: what PostgreSQL says of a row, once it is logged with its cause, is found: the runs above could fail."""
    place = postgresql_kinds.new_place(postgresql_server, "psycopg")
    place.admin.execute(TABLES_OF_POSTGRESQL)
    place.admin.execute(FIRST)
    try:
        place.admin.execute(FIRST)
    except psycopg.Error:
        logging.getLogger("twicesafe").exception("refused")
    place.leave()
    assert searched.leaks and "the log" in told()
    searched.leaks.clear()
    for _ in range(5):
        searched.saw("nothing", "")
