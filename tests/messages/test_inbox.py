"""A consumer handles each message once: its id is recorded with the effect, and the failure of one is that of both."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import CONSUMER, EACH, ONE_OF_EACH, SOURCE, Database, Opened, new_id, opened
from twicesafe.core.message import Message
from twicesafe.errors import ConfigurationError, InvalidMessageError
from twicesafe.inbox import AsyncInbox, Inbox, Received

EACH_KIND = pytest.mark.parametrize(("dialect", "kind"), EACH)
EACH_DIALECT = pytest.mark.parametrize(("dialect", "kind"), ONE_OF_EACH)
SEVERAL_WRITERS = pytest.mark.parametrize(("dialect", "kind"), [one for one in ONE_OF_EACH if one[0] != "sqlite"])


async def handle(one: Opened, message: Any, name: str, consumer: str = CONSUMER) -> bool:
    """What a consumer does in its transaction: the effect, if it is its turn."""
    handled: bool = await one.inbox("once", message, consumer=consumer)
    if handled:
        await one.write(name)
    return handled


async def deliver(one: Opened, message: Any, name: str, consumer: str = CONSUMER) -> bool:
    """A delivery whose consumer does not fail."""
    await one.begin()
    handled = await handle(one, message, name, consumer)
    await one.commit()
    return handled


@EACH_KIND
def test_a_message_is_handled_once(databases: Databases, dialect: str, kind: str) -> None:
    """I9, R29: on every connection the effect of a message that is delivered three times happens once."""
    database, name = databases(dialect), new_id()
    message = Message(new_id(), SOURCE, "order.placed", "order", "o-1", b"{}")

    async def trial() -> list[bool]:
        async with opened(database, kind) as one:
            return [await deliver(one, message, name) for _ in range(3)]

    assert asyncio.run(trial()) == [True, False, False]
    assert database.effects(name) == 1


@EACH_DIALECT
def test_consumers_and_sources_do_not_know_each_other(databases: Databases, dialect: str, kind: str) -> None:
    """R29: another consumer handles the same message, and the same id of another source is another message."""
    database, name, same = databases(dialect), new_id(), new_id()

    async def trial() -> list[bool]:
        async with opened(database, kind) as one:
            return [
                await deliver(one, Received(same, SOURCE), name),
                await deliver(one, Received(same, SOURCE), name, "shipping"),
                await deliver(one, Received(same, "/others"), name),
                await deliver(one, Received(same + "x", SOURCE), name),
                await deliver(one, Received(same, SOURCE), name, "shipping"),
                await deliver(one, Received("b" + same, "/a"), name),
                await deliver(one, Received(same, "/ab"), name),
            ]

    assert asyncio.run(trial()) == [True, True, True, True, False, True, True]
    assert database.effects(name) == 6


@EACH_DIALECT
def test_a_handler_that_fails_is_handled_again(databases: Databases, dialect: str, kind: str) -> None:
    """J1, R29: a message whose handler raised is not taken for handled; its redelivery happens, and happens once."""
    database, name, message = databases(dialect), new_id(), Received(new_id(), SOURCE)

    async def trial() -> None:
        async with opened(database, kind) as one:
            for _ in range(2):
                await one.begin()
                assert await handle(one, message, name)
                await one.roll_back()
            assert database.effects(name) == 0
            assert [await deliver(one, message, name) for _ in range(2)] == [True, False]

    asyncio.run(trial())
    assert database.effects(name) == 1


@SEVERAL_WRITERS
@pytest.mark.parametrize("first", ["commits", "rolls back"])
def test_two_consumers_at_once(databases: Databases, dialect: str, kind: str, first: str) -> None:
    """J1, R29: while one consumer handles a message the other waits, and handles it only if the first did not."""
    database, name, message = databases(dialect), new_id(), Received(new_id(), SOURCE)

    async def trial() -> bool:
        async with opened(database, kind) as one, opened(database, kind) as two:
            await one.begin()
            await two.begin()
            assert await handle(one, message, name)
            waiting = asyncio.create_task(handle(two, message, name))
            await until_somebody_waits(database)
            await (one.commit() if first == "commits" else one.roll_back())
            handled = await waiting
            await two.commit()
            return handled

    assert asyncio.run(trial()) is (first == "rolls back")
    assert database.effects(name) == 1


async def until_somebody_waits(database: Database) -> None:
    """Return when a transaction waits for another one's end."""
    query = {
        "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'",
        "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    }[database.dialect]
    async with asyncio.timeout(60):
        while not (await asyncio.to_thread(database.ask, query))[0][0]:
            pass


KILLED = """
import sqlite3, sys, psycopg, pymysql
from twicesafe.inbox import Inbox, Received
dialect, where, port, message, name = sys.argv[1:]
if dialect == "sqlite":
    connection = sqlite3.connect(where)
elif dialect == "postgresql":
    connection = psycopg.connect(where)
else:
    connection = pymysql.connect(host="127.0.0.1", port=int(port), user="twicesafe", database=where)
assert Inbox("billing").once(connection, Received(message, "/tests"))
connection.cursor().execute(f"INSERT INTO effects (name) VALUES ('{name}')")
print("handled", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("dialect", "kind"), [("sqlite", "sqlite3"), ("postgresql", "psycopg"), ("mysql", "PyMySQL")])
def test_a_consumer_that_is_killed_has_not_handled(databases: Databases, dialect: str, kind: str) -> None:
    """J1, R29: a consumer that is killed between effect and commit leaves nothing; the redelivery is handled once."""
    database, name, message = databases(dialect), new_id(), new_id()
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, dialect, database.where, str(database.port), message, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"handled\n"
        killed.send_signal(signal.SIGKILL)
    assert database.effects(name) == 0

    async def trial() -> list[bool]:
        async with opened(database, kind) as one:
            return [await deliver(one, Received(message, SOURCE), name) for _ in range(2)]

    assert asyncio.run(trial()) == [True, False]
    assert database.effects(name) == 1


def test_a_commit_that_fails_has_not_handled(databases: Databases) -> None:
    """J1, R29: where the commit itself is refused the message is not handled either, and the redelivery is."""
    database, name, message = databases("postgresql"), new_id(), Received(new_id(), SOURCE)
    database.ask("CREATE TABLE parents (id int PRIMARY KEY)")
    database.ask(
        "CREATE TABLE children (parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)",
    )

    async def trial() -> list[bool]:
        async with opened(database, "asyncpg") as one:
            await one.begin()
            assert await handle(one, message, name)
            await one.execute("INSERT INTO children VALUES (1)")
            with pytest.raises(Exception, match="children_parent_fkey"):
                await one.commit()
            assert database.effects(name) == 0
            return [await deliver(one, message, name) for _ in range(2)]

    assert asyncio.run(trial()) == [True, False]
    assert database.effects(name) == 1


@EACH_DIALECT
def test_a_message_can_be_put_back_on_purpose(databases: Databases, dialect: str, kind: str) -> None:
    """R29: a message that was forgotten is handled once more, and one that never came is told from it."""
    database, name, message = databases(dialect), new_id(), Received(new_id(), SOURCE)

    async def trial() -> list[bool]:
        async with opened(database, kind) as one:
            answers = [await deliver(one, message, name)]
            for _ in range(2):
                await one.begin()
                answers.append(await one.inbox("forget", message))
                await one.commit()
            return [*answers, await deliver(one, message, name), await deliver(one, message, name)]

    assert asyncio.run(trial()) == [True, True, False, True, False]
    assert database.effects(name) == 2


@EACH_KIND
def test_late_ones_are_refused(databases: Databases, dialect: str, kind: str) -> None:
    """R29: with positions a consumer never goes back: what comes after a later one of its aggregate has no effect."""
    database, name, aggregate = databases(dialect), new_id(), new_id()

    async def trial() -> list[bool]:
        async with opened(database, kind) as one:

            async def at(position: int, whose: str = aggregate) -> bool:
                return await deliver(one, Received(new_id(), SOURCE, whose, position), name)

            answers = [await at(2), await at(5), await at(3), await at(5), await at(6), await at(1, new_id())]
            await one.begin()
            answers.append(await handle(one, Received(new_id(), SOURCE, aggregate, 9), name))
            await one.roll_back()
            return [*answers, await at(7)]

    assert asyncio.run(trial()) == [True, True, False, True, True, True, True, True]
    assert database.effects(name) == 6


@EACH_DIALECT
def test_old_ones_are_forgotten_in_small_batches(databases: Databases, dialect: str, kind: str) -> None:
    """R20, R29: what was handled longer ago than any sender tries is deleted, so many at a time, and nothing else."""
    database, old = databases(dialect), [new_id() for _ in range(3)]
    consumer = new_id()
    young = Received(new_id(), SOURCE)
    day = timedelta(days=1)

    async def trial() -> None:
        async with opened(database, kind) as one:
            for message in old:
                await deliver(one, Received(message, SOURCE), "old", consumer)
            database.ask("UPDATE twicesafe_inbox SET at = at - 90000000000 WHERE consumer = %s", consumer)
            await deliver(one, young, "young", consumer)
            purged = []
            for _ in range(3):
                await one.begin()
                purged.append(await one.inbox("purge", day, 2))
                await one.commit()
            assert purged == [2, 1, 0]
            assert not await deliver(one, young, "young", consumer)

    asyncio.run(trial())
    assert database.ask("SELECT id FROM twicesafe_inbox WHERE consumer = %s", consumer) == [(young.id,)]


@pytest.mark.parametrize(
    "wrong",
    [
        Received("", SOURCE),
        Received(" ", SOURCE),
        Received(None, SOURCE),  # type: ignore[arg-type]
        Received(0, SOURCE),  # type: ignore[arg-type]
        Received("m-1", ""),
        Received("m-1", None),  # type: ignore[arg-type]
        Received("m-1", SOURCE, "o-1"),
        Received("m-1", SOURCE, None, 1),
        Received("m-1", SOURCE, "", 1),
        Received("m-1", SOURCE, "o-1", -1),
        Received("m-1", SOURCE, "o-1", 2**63),
        Received("m-1", SOURCE, "o-1", True),
        "m-1",
        None,
        Message("", SOURCE, "order.placed", "order", "o-1", b"{}"),
    ],
)
def test_what_has_no_id_is_refused(wrong: Any) -> None:
    """R29: an empty or missing id would make all messages one: it is refused before anything is asked."""
    with sqlite3.connect(":memory:", isolation_level=None) as connection:
        with pytest.raises(InvalidMessageError):
            Inbox(CONSUMER).once(connection, wrong)
        with pytest.raises(InvalidMessageError):
            asyncio.run(AsyncInbox(CONSUMER).once(None, wrong))
    connection.close()


def test_wrong_settings_of_an_inbox_are_refused() -> None:
    """R29: an inbox without a name, and a retention of nothing, are refused."""
    with pytest.raises(InvalidMessageError, match="consumer"):
        Inbox("")
    with pytest.raises(ConfigurationError, match="older_than"):
        Inbox(CONSUMER).purge(None, timedelta(0))
