"""Flask and transactions, the store's and those of each request: what is stored agrees with the data."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import flask
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

from tests.shells.flask_app import MARKER, made, post
from twicesafe.stores.sqlalchemy import SqlalchemyStore
from twicesafe.stores.sqlite import SqliteStore


@pytest.fixture
def transactional(tmp_path):
    """A SQLite store with a ledger that refuses bad marks at the commit, and a function that counts its rows."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE marks (mark INTEGER PRIMARY KEY); INSERT INTO marks VALUES (1);"
            "CREATE TABLE ledger (mark INTEGER REFERENCES marks DEFERRABLE INITIALLY DEFERRED)"
        )
    store = SqliteStore(path, configure=lambda connection: connection.execute("PRAGMA foreign_keys = ON"))
    store.apply_schema()

    def rows():
        with closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT count(*) FROM ledger").fetchone()[0]

    yield store, rows, path
    store.close()


class MappedError(Exception):
    """Turned into 409."""


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_transaction_agrees_with_its_answer(transactional, kind):
    """H2, R23: returned, raised and mapped failures roll back and are stored; a refused commit is no success."""
    store, rows, _ = transactional
    app, safe, _ = made(store)

    def done(how):
        safe.connection.execute("INSERT INTO ledger VALUES (?)", (2 if how == "refused" else 1,))
        if how == "returned":
            return "no", 400
        if how == "raised":
            flask.abort(400)
        if how == "mapped":
            raise MappedError
        return "yes", 201

    if kind == "sync":

        @app.post("/jobs/<how>")
        @safe.operation(effects="transactional")
        def work(how):
            return done(how)

    else:

        @app.post("/jobs/<how>")
        @safe.operation(effects="transactional")
        async def work(how):
            return done(how)

    app.register_error_handler(MappedError, lambda error: ("mapped", 409))
    for how, status in (("returned", 400), ("raised", 400), ("mapped", 409)):
        answers = [post(app, f"/jobs/{how}", {"Idempotency-Key": how}) for _ in range(2)]
        assert rows() == 0
        assert [(answer.status_code, answer.headers.get(MARKER)) for answer in answers] == [
            (status, None),
            (status, "true"),
        ]
    for _ in range(2):
        with pytest.raises(Exception, match="a constraint refused the commit"):
            post(app, "/jobs/refused")
    assert rows() == 0
    assert [post(app, "/jobs/fine", {"Idempotency-Key": "fine"}).status_code for _ in range(2)] == [201, 201]
    assert rows() == 1
    assert post(app, "/jobs/fine", {}).status_code == 201
    assert post(app, "/jobs/returned", {}).status_code == 400
    assert rows() == 2


def test_a_transaction_of_each_request_agrees_with_its_answer(transactional):
    """H2: a connection that after_request commits, or closes uncommitted: what is stored as done is committed."""
    store, rows, path = transactional
    app, safe, _ = made(store)

    @app.before_request
    def begin():
        flask.g.db = sqlite3.connect(path)
        flask.g.db.execute("PRAGMA foreign_keys = ON")

    @app.after_request
    def end(response):
        if response.status_code < 400:
            flask.g.db.commit()
        return response

    @app.teardown_request
    def close(error):
        flask.g.db.close()

    @app.errorhandler(MappedError)
    def mapped(error):
        return "mapped", 409

    @app.post("/jobs/<how>")
    @safe.operation()
    def work(how):
        flask.g.db.execute("INSERT INTO ledger VALUES (?)", (2 if how == "refused" else 1,))
        if how == "returned":
            return "no", 400
        if how == "raised":
            flask.abort(400)
        if how == "mapped":
            raise MappedError
        return "yes", 201

    for how, status in (("returned", 400), ("raised", 400), ("mapped", 409), ("refused", 500)):
        answers = [post(app, f"/jobs/{how}", {"Idempotency-Key": how}) for _ in range(2)]
        assert rows() == 0
        assert [answer.status_code for answer in answers] == [status] * 2
        assert answers[1].headers[MARKER] == "true"
    assert [post(app, "/jobs/fine", {"Idempotency-Key": "fine"}).status_code for _ in range(2)] == [201, 201]
    assert rows() == 1


def test_a_session_of_sqlalchemy_is_the_transaction(tmp_path):
    """R23, H2: with its store `safe.connection` is a Session, committed with the answer or rolled back with it."""
    engine = create_engine(f"sqlite:///{tmp_path / 'orm.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE ledger (id INTEGER PRIMARY KEY)"))
    store = SqlalchemyStore(sessionmaker(engine))
    store.apply_schema()
    app, safe, _ = made(store)

    @app.post("/jobs/<int:status>")
    @safe.operation(effects="transactional")
    def work(status):
        safe.connection.execute(text("INSERT INTO ledger DEFAULT VALUES"))
        return {"n": safe.connection.scalar(text("SELECT count(*) FROM ledger"))}, status

    def rows():
        with engine.connect() as connection:
            return connection.scalar(text("SELECT count(*) FROM ledger"))

    for status, kept in ((409, 0), (201, 1)):
        answers = [post(app, f"/jobs/{status}", {"Idempotency-Key": str(status)}) for _ in range(2)]
        assert rows() == kept
        assert [(answer.status_code, answer.json) for answer in answers] == [(status, {"n": 1})] * 2
        assert answers[1].headers[MARKER] == "true"
    store.close()
    engine.dispose()
