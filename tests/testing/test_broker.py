"""The broker for tests, between a relay and a consumer with an inbox."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from twicesafe.core.delivery import DeliveryPolicy
from twicesafe.core.message import Message
from twicesafe.errors import ConfigurationError
from twicesafe.inbox import Inbox
from twicesafe.outbox import Outbox
from twicesafe.outbox.relay import Relay, Relayed
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import BrokerFault, FakeBroker

AT_ONCE = DeliveryPolicy(first_delay=timedelta(microseconds=1), attempts=3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with an outbox, two messages in it, an inbox and a table of effects."""
    file = tmp_path / "shop.db"
    with closing(SqliteStore(file)) as store:
        store.apply_schema()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE invoices (number TEXT)")
        for number in ("o-1", "o-2"):
            Outbox("/shop").add(connection, "order.placed", ("order", number), {}, id=number)
    return file


def relayed(
    file: Path, broker: FakeBroker, rounds: int, during: Callable[[], Awaitable[object]] | None = None
) -> list[Relayed]:
    """What so many rounds of a relay came to; `during` is awaited beside each."""

    async def run() -> list[Relayed]:
        store = AsyncSqliteStore(file)
        relay = Relay(store, broker, policy=AT_ONCE)
        try:
            found = []
            for _ in range(rounds):
                turn = asyncio.create_task(relay.run_once())
                if during is not None:
                    await during()
                found.append(await turn)
            return found
        finally:
            await relay.aclose()
            await store.aclose()

    return asyncio.run(run())


def consumer(file: Path) -> Callable[[Message], None]:
    """Somebody who invoices each message once."""
    inbox = Inbox("billing")

    def consume(message: Message) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            if inbox.once(connection, message):
                connection.execute("INSERT INTO invoices VALUES (?)", (message.id,))

    return consume


def invoices(file: Path) -> list[str]:
    """What was invoiced."""
    with closing(sqlite3.connect(file)) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM invoices ORDER BY rowid")]


def test_a_message_that_is_not_taken_comes_again(file: Path) -> None:
    """R42, I9: what the broker did not take, the relay brings once more; nothing is there twice."""
    broker = FakeBroker()
    broker.arm("never")
    first, second = relayed(file, broker, 2)
    assert sorted(message.id for message in broker.taken) == ["o-1", "o-2"]
    assert (first.failed, first.delivered + second.delivered) == (1, 2)


def test_an_acknowledgement_that_is_lost_makes_a_duplicate(file: Path) -> None:
    """R42, I9: a message whose acknowledgement was lost is there twice; a consumer with an inbox handles it once."""
    broker = FakeBroker()
    broker.arm(BrokerFault.LOST, times=2)
    relayed(file, broker, 2)
    assert broker.deliver(consumer(file)) == 4
    assert sorted(invoices(file)) == ["o-1", "o-2"]


def test_twice_and_once_more(file: Path) -> None:
    """R42, I9: handed out twice by a fault and twice by the test, the effect happens once."""
    broker = FakeBroker()
    broker.arm("twice")
    relayed(file, broker, 1)
    assert broker.deliver(consumer(file), times=2) == 6
    assert sorted(invoices(file)) == ["o-1", "o-2"]
    assert broker.deliver(consumer(file)) == 0


def test_a_late_acknowledgement_is_waited_for(file: Path) -> None:
    """R42, I9: a relay marks a message only once it was acknowledged, however late."""
    broker = FakeBroker()
    broker.arm("late")
    seen: list[int] = []

    async def during() -> None:
        await broker.until_late()
        with closing(sqlite3.connect(file)) as connection:
            seen.extend(connection.execute("SELECT count(*) FROM twicesafe_outbox WHERE state = 'pending'").fetchone())
        assert broker.acknowledge() == 1
        # It waits no longer, and nothing else does.
        assert broker.acknowledge() == 0

    (turn,) = relayed(file, broker, 1, during)
    assert len(broker.taken) == 2
    assert (seen, turn.delivered) == ([2], 2)


def test_a_message_is_overtaken(file: Path) -> None:
    """R42: the first message is handed out behind the one that came next, or last where none comes."""
    broker = FakeBroker()
    broker.arm("overtaken")
    relayed(file, broker, 1)
    handed: list[str] = []
    broker.deliver(lambda message: handed.append(message.id))
    assert handed == [broker.taken[1].id, broker.taken[0].id]
    broker.arm("overtaken")
    asyncio.run(broker.publish(broker.taken[0]))
    assert broker.deliver(lambda message: handed.append(message.id)) == 1


def test_a_message_refused_is_a_dead_letter(file: Path) -> None:
    """R42, I9: what is refused for good is not tried again."""
    broker = FakeBroker()
    broker.arm("refused")
    relayed(file, broker, 2)
    assert len(broker.taken) == 1
    with closing(sqlite3.connect(file)) as connection:
        states = connection.execute("SELECT state FROM twicesafe_outbox ORDER BY state").fetchall()
    assert states == [("delivered",), ("parked",)]


def test_a_consumer_that_fails_gets_it_again(file: Path) -> None:
    """R42, I9: a delivery whose handler raises is repeated behind the others, and raised when there is no end of it."""
    broker = FakeBroker()
    relayed(file, broker, 1)
    handed: list[str] = []

    async def consume(message: Message) -> None:
        handed.append(message.id)
        if handed.count(message.id) < 3 and message.id == "o-1":
            raise ValueError("not now")

    assert asyncio.run(broker.adeliver(consume)) == 4
    assert sorted(handed) == ["o-1", "o-1", "o-1", "o-2"]

    def broken(message: Message) -> None:
        raise ValueError("never")

    relayed(file, broker, 1)
    asyncio.run(broker.publish(broker.taken[0]))
    with pytest.raises(ValueError, match="never") as failed:
        broker.deliver(broken, most=2)
    assert "was handed out 2 times, and its consumer failed" in failed.value.__notes__[0]


def test_a_fault_has_a_name() -> None:
    """R42: a fault that is misspelt is refused by the names there are."""
    with pytest.raises(ConfigurationError, match="one of never, lost, late, twice, overtaken, refused, not 'dup'"):
        FakeBroker().arm("dup")
