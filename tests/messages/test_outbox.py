"""A message is there if and only if its transaction committed, and in the order of commits within its aggregate."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from functools import partial
from typing import Any

import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import (
    EACH,
    KINDS,
    ONE_OF_EACH,
    SOURCE,
    Database,
    Opened,
    new_id,
    open_async_session,
    open_asyncmy,
    open_core,
    open_psycopg,
    open_pymysql,
    open_sqlite3,
    opened,
)
from twicesafe.errors import ConfigurationError, InvalidMessageError, MessageExistsError, NotInTransactionError
from twicesafe.inbox import Received
from twicesafe.outbox import AsyncOutbox, Outbox

RECEIVED = Received("m-1", SOURCE)

EACH_KIND = pytest.mark.parametrize(("dialect", "kind"), EACH)
EACH_DIALECT = pytest.mark.parametrize(("dialect", "kind"), ONE_OF_EACH)
SEVERAL_WRITERS = pytest.mark.parametrize(("dialect", "kind"), [one for one in ONE_OF_EACH if one[0] != "sqlite"])


@EACH_KIND
def test_a_message_is_there_iff_its_transaction_committed(databases: Databases, dialect: str, kind: str) -> None:
    """I9, R28: on every connection message and effect are committed together, and rolled back together."""
    database, aggregate = databases(dialect), new_id()

    async def trial() -> None:
        async with opened(database, kind) as one:
            await one.begin()
            await one.write(aggregate)
            kept = [await one.add(aggregate), await one.add(aggregate, id=new_id())]
            assert (database.messages(aggregate), database.effects(aggregate)) == ([], 0)
            await one.commit()
            assert (database.messages(aggregate), database.effects(aggregate)) == (kept, 1)
            await one.begin()
            await one.write(aggregate)
            await one.add(aggregate)
            await one.roll_back()
            assert (database.messages(aggregate), database.effects(aggregate)) == (kept, 1)

    asyncio.run(trial())


@EACH_KIND
def test_an_id_stands_once(databases: Databases, dialect: str, kind: str) -> None:
    """R28: an id that is in the outbox is refused by name, on every connection, and the transaction goes on."""
    database, aggregate, taken = databases(dialect), new_id(), new_id()

    async def trial() -> None:
        async with opened(database, kind) as one:
            await one.begin()
            await one.add(aggregate, id=taken)
            for _ in range(2):
                with pytest.raises(MessageExistsError, match=taken):
                    await one.add(aggregate, id=taken, data={"n": 2})
                await one.write(aggregate)
                other = await one.add(aggregate)
                await one.commit()
                await one.begin()
            assert database.effects(aggregate) == 2
            assert database.messages(aggregate)[0] == taken
            assert database.messages(aggregate)[-1] == other
            assert database.messages(aggregate).count(taken) == 1

    asyncio.run(trial())


@EACH_DIALECT
def test_everything_that_was_said_is_kept(databases: Databases, dialect: str, kind: str) -> None:
    """R28: Debezium's columns and the envelope's hold what was given, to the byte, and the database's time."""
    database, aggregate = databases(dialect), "Zoë ☃ \U0001f600 ' \\ %s :x"
    data = bytes(range(256))

    async def trial() -> str:
        async with opened(database, kind) as one:
            await one.begin()
            added = await one.add(
                aggregate,
                data=data,
                subject="50 % ☃",
                datacontenttype="application/octet-stream",
                headers={"traceparent": "00-1", "tenant": "Zoë \\"},
            )
            await one.commit()
            return added

    added = asyncio.run(trial())
    columns = "id, aggregatetype, aggregateid, type, payload, source, subject, content_type, headers"
    (row,) = database.ask(f"SELECT {columns}, state, attempts, next_at FROM twicesafe_outbox WHERE id = %s", added)
    assert row[:4] == (added, "order", aggregate, "order.placed")
    assert bytes(row[4]) == data
    assert row[5:8] == (SOURCE, "50 % ☃", "application/octet-stream")
    assert json.loads(row[8]) == {"traceparent": "00-1", "tenant": "Zoë \\"}
    assert row[9:] == ("pending", 0, 0)
    now = {
        "sqlite": "(julianday('now') - 2440587.5) * 86400",
        "postgresql": "CAST(extract(epoch FROM now()) AS bigint)",
        "mysql": "UNIX_TIMESTAMP()",
    }[dialect]
    (late,) = database.ask(f"SELECT {now} - created_at / 1000000 FROM twicesafe_outbox WHERE id = %s", added)
    assert -2 <= late[0] < 3600


@SEVERAL_WRITERS
def test_the_order_is_that_of_commits(databases: Databases, dialect: str, kind: str) -> None:
    """R28, K: a writer of the same aggregate waits for the commit before it draws its number; others do not wait."""
    database, aggregate, other = databases(dialect), new_id(), new_id()

    async def trial() -> None:
        async with opened(database, kind) as one, opened(database, kind) as two, opened(database, kind) as three:
            for each in (one, two, three):
                await each.begin()
            first = await one.add(aggregate)
            waiting = asyncio.create_task(two.add(aggregate))
            await until_somebody_waits(database)
            # Had the one that waits a number already, this one's would be higher.
            between = await three.add(other)
            await three.commit()
            assert not waiting.done()
            await one.commit()
            second = await waiting
            await two.commit()
            assert database.messages(aggregate) == [first, second]
            rows = database.ask(
                "SELECT id FROM twicesafe_outbox WHERE id IN (%s, %s, %s) ORDER BY seq", first, second, between
            )
            assert [row[0] for row in rows] == [first, between, second]

    asyncio.run(trial())


@SEVERAL_WRITERS
def test_who_waited_for_a_rollback_goes_on(databases: Databases, dialect: str, kind: str) -> None:
    """I9: a writer whose predecessor rolls back, to a savepoint or altogether, adds as if it had never been."""
    database, aggregate = databases(dialect), new_id()

    async def trial() -> None:
        async with opened(database, kind) as one, opened(database, kind) as two:
            await one.begin()
            await two.begin()
            await one.execute("SAVEPOINT tried")
            undone = await one.add(aggregate)
            await one.execute("ROLLBACK TO SAVEPOINT tried")
            await one.roll_back()
            await one.begin()
            kept = await two.add(aggregate)
            waiting = asyncio.create_task(one.add(aggregate))
            await until_somebody_waits(database)
            await two.roll_back()
            last = await waiting
            await one.commit()
            assert undone != kept != last
            assert database.messages(aggregate) == [last]

    asyncio.run(trial())


@EACH_DIALECT
def test_a_savepoint_keeps_and_undoes_messages(databases: Databases, dialect: str, kind: str) -> None:
    """I9: what was added after a savepoint goes with it, what was added before and afterwards stays."""
    database, aggregate = databases(dialect), new_id()

    async def trial() -> None:
        async with opened(database, kind) as one:
            await one.begin()
            first = await one.add(aggregate)
            await one.execute("SAVEPOINT tried")
            again = new_id()
            await one.add(aggregate, id=again)
            await one.execute("ROLLBACK TO SAVEPOINT tried")
            await one.add(aggregate, id=again)
            await one.execute("RELEASE SAVEPOINT tried")
            await one.commit()
            assert database.messages(aggregate) == [first, again]

    asyncio.run(trial())


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@SEVERAL_WRITERS
def test_isolation_levels_do_not_matter(databases: Databases, dialect: str, kind: str, level: str) -> None:
    """I9, K: with a snapshot older than its predecessor's commit a writer still comes after it."""
    database, aggregate = databases(dialect), new_id()

    async def trial() -> None:
        async with opened(database, kind) as one, opened(database, kind) as two:
            if dialect == "mysql":
                await one.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
                await one.begin()
            else:
                await one.begin()
                if kind == "psycopg":
                    await one.roll_back()
                    one.begun = True
                await one.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            await one.execute("SELECT count(*) FROM effects")
            await two.begin()
            first = await two.add(aggregate)
            await two.commit()
            second = await one.add(aggregate)
            await one.commit()
            assert database.messages(aggregate) == [first, second]

    asyncio.run(trial())


@pytest.mark.parametrize(("dialect", "kind"), [*ONE_OF_EACH, ("sqlite", "aiosqlite"), ("mysql", "asyncmy")])
def test_many_writers_lose_nothing_and_keep_their_order(databases: Databases, dialect: str, kind: str) -> None:
    """I9, R28, K: reading again and again while writers commit in any order, a reader meets each message once, and
    those of an aggregate in the order in which their transactions committed."""
    database = databases(dialect)
    aggregates = [new_id() for _ in range(3)]
    writers, each = 4, 8
    committed: dict[str, list[str]] = {aggregate: [] for aggregate in aggregates}

    async def write(number: int) -> None:
        async with opened(database, kind) as one:
            for turn in range(each):
                # In the order of their names, so that no two wait for each other.
                chosen = sorted({aggregates[(number + turn) % 3], aggregates[(number * turn) % 3]})
                await one.begin()
                added = [(aggregate, await one.add(aggregate)) for aggregate in chosen]
                await one.write("turn")
                if (number + turn) % 4 == 3:
                    await one.roll_back()
                    continue
                # Nobody else can add to these until the commit, so this is the order of commits.
                for aggregate, message in added:
                    committed[aggregate].append(message)
                await one.commit()

    async def read(done: asyncio.Event) -> list[str]:
        met: list[str] = []
        marks = ", ".join(["%s"] * 3)
        while True:
            last = done.is_set()
            rows = await asyncio.to_thread(
                database.ask,
                f"SELECT id FROM twicesafe_outbox WHERE aggregateid IN ({marks}) AND state = 'pending' ORDER BY seq",
                *aggregates,
            )
            known = set(met)
            met += [row[0] for row in rows if row[0] not in known]
            if last:
                return met

    async def trial() -> list[str]:
        done = asyncio.Event()
        reading = asyncio.create_task(read(done))
        await asyncio.gather(*(write(number) for number in range(writers)))
        done.set()
        return await reading

    met = asyncio.run(trial())
    assert len(met) == len(set(met)) == sum(map(len, committed.values()))
    for aggregate, order in committed.items():
        assert [message for message in met if message in set(order)] == order == database.messages(aggregate)


async def until_somebody_waits(database: Database) -> None:
    """Return when a transaction waits for another one's end."""
    query = {
        "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    }[database.dialect]
    async with asyncio.timeout(60):
        while not (await asyncio.to_thread(database.ask, query))[0][0]:
            pass


# --- what is refused -------------------------------------------------------------------------------------------------

IN_AUTOCOMMIT: dict[str, tuple[str, Any]] = {
    "sqlite3": ("sqlite", open_sqlite3),
    "aiosqlite": ("sqlite", KINDS["sqlite"]["aiosqlite"]),
    "SQLAlchemy on SQLite": ("sqlite", partial(open_core, driver="pysqlite", isolation_level="AUTOCOMMIT")),
    "Django": ("sqlite", KINDS["sqlite"]["Django"]),
    "psycopg": ("postgresql", partial(open_psycopg, autocommit=True)),
    "asyncpg": ("postgresql", KINDS["postgresql"]["asyncpg"]),
    "SQLAlchemy": ("postgresql", partial(open_core, driver="psycopg", isolation_level="AUTOCOMMIT")),
    "SQLAlchemy, async": ("postgresql", partial(open_async_session, driver="asyncpg", isolation_level="AUTOCOMMIT")),
    "PyMySQL": ("mysql", partial(open_pymysql, autocommit=True)),
    "asyncmy": ("mysql", partial(open_asyncmy, autocommit=True)),
    "SQLAlchemy on MySQL": ("mysql", partial(open_core, driver="pymysql", isolation_level="AUTOCOMMIT")),
    "SQLAlchemy on MySQL, async": (
        "mysql",
        partial(open_async_session, driver="asyncmy", isolation_level="AUTOCOMMIT"),
    ),
}


@pytest.mark.parametrize("kind", IN_AUTOCOMMIT)
def test_outside_of_a_transaction_nothing_is_written(databases: Databases, kind: str) -> None:
    """I9: a connection that commits each statement by itself is refused before anything is sent."""
    dialect, make = IN_AUTOCOMMIT[kind]
    database, aggregate = databases(dialect), new_id()

    async def trial() -> None:
        one: Opened = await make(database)
        try:
            with pytest.raises(NotInTransactionError, match="begin a transaction first"):
                await one.add(aggregate)
            with pytest.raises(NotInTransactionError):
                await one.inbox("once", RECEIVED)
            assert database.messages(aggregate) == []
        finally:
            await one.close()

    asyncio.run(trial())


def test_a_transaction_that_the_driver_begins_by_itself_is_one(databases: Databases) -> None:
    """I9: with sqlite3's own way of beginning transactions a message waits for the commit like any row."""
    database, aggregate = databases("sqlite"), new_id()

    async def trial() -> None:
        one = await open_sqlite3(database, "")
        added = await one.add(aggregate)
        assert database.messages(aggregate) == []
        await one.commit()
        assert database.messages(aggregate) == [added]
        await one.close()

    asyncio.run(trial())


def nested() -> object:
    """A list in a list, and so on, as deep as nobody writes it."""
    found: list[object] = []
    for _ in range(100_000):
        found = [found]
    return found


@EACH_DIALECT
@pytest.mark.parametrize(
    "wrong", [{"id": ""}, {"id": " "}, {"id": 7}, {"subject": ""}, {"data": object()}, {"data": nested()}]
)
def test_messages_without_an_id_are_refused(databases: Databases, dialect: str, kind: str, wrong: Any) -> None:
    """R28: an empty id, or data that is none, is refused before anything is written, and the transaction goes on."""
    database, aggregate = databases(dialect), new_id()

    async def trial() -> None:
        async with opened(database, kind) as one:
            await one.begin()
            with pytest.raises(InvalidMessageError):
                await one.add(aggregate, **wrong)
            await one.write(aggregate)
            await one.commit()
        assert (database.messages(aggregate), database.effects(aggregate)) == ([], 1)

    asyncio.run(trial())


def test_what_is_no_connection_is_refused() -> None:
    """R28: a store of another kind, a blocking connection where one has to be awaited, and the reverse, say so."""
    blocking, asynchronous = Outbox(SOURCE), AsyncOutbox(SOURCE)
    arguments = ("order.placed", ("order", "o-1"), b"{}")
    with sqlite3.connect(":memory:") as connection, pytest.raises(ConfigurationError, match="without Async"):
        asyncio.run(asynchronous.add(connection, *arguments))
    connection.close()
    for nothing in (None, {}, object()):
        with pytest.raises(ConfigurationError, match="no connection"):
            blocking.add(nothing, *arguments)
        with pytest.raises(ConfigurationError, match="no connection"):
            asyncio.run(asynchronous.add(nothing, *arguments))
    with pytest.raises(InvalidMessageError, match="source"):
        Outbox("")
    with pytest.raises(ConfigurationError, match="data_limit"):
        Outbox(SOURCE, data_limit=0)
    with pytest.raises(InvalidMessageError, match="pair"):
        blocking.add(None, "order.placed", "o-1", b"{}")  # type: ignore[arg-type]
