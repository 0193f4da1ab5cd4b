"""What was committed, what arrived, and what it did: rows beside outbox and inbox, on whichever database.

Nothing in them is unique that should happen once: they show what happened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from twicesafe.inbox import AsyncInbox
from twicesafe.outbox import AsyncOutbox, Message
from twicesafe.stores.callers_asyncio import arun
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries, choose, parse
from twicesafe.stores.steps import Steps

R = TypeVar("R")

SOURCE: Final = "/storm"
CONSUMER: Final = "storm"
KIND: Final = "order"
TYPE: Final = "order.changed"

_PLACEHOLDERS: Final = {
    Dialect.SQLITE: Placeholder.QUESTION_MARK,
    Dialect.POSTGRESQL: Placeholder.NUMBER,
    Dialect.MYSQL: Placeholder.PERCENT,
}

_TEXT: Final = """
-- name: create_sent
CREATE TABLE storm_sent (
    number integer NOT NULL PRIMARY KEY, message varchar(64) NOT NULL, aggregate varchar(64) NOT NULL,
    place integer NOT NULL
);
-- name: create_places
CREATE TABLE storm_places (aggregate varchar(64) NOT NULL PRIMARY KEY, place integer NOT NULL);
-- name: create_deliveries [sqlite]
CREATE TABLE storm_deliveries (number integer PRIMARY KEY, message varchar(64) NOT NULL);
-- name: create_deliveries [postgresql]
CREATE TABLE storm_deliveries (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message varchar(64) NOT NULL
);
-- name: create_deliveries [mysql]
CREATE TABLE storm_deliveries (number bigint AUTO_INCREMENT PRIMARY KEY, message varchar(64) NOT NULL);
-- name: create_effects
CREATE TABLE storm_effects (message varchar(64) NOT NULL);

-- name: open_aggregate
INSERT INTO storm_places (aggregate, place) VALUES (:aggregate, 0);
-- name: next_place
-- Its row stays locked up to the commit: places are the order of commits, whatever the outbox makes of it.
UPDATE storm_places SET place = place + 1 WHERE aggregate = :aggregate;
-- name: note_sent
INSERT INTO storm_sent (number, message, aggregate, place)
VALUES (:number, :message, :aggregate, (SELECT place FROM storm_places WHERE aggregate = :same_aggregate));
-- name: is_sent
SELECT 1 FROM storm_sent WHERE number = :number;
-- name: note_delivery
INSERT INTO storm_deliveries (message) VALUES (:message);
-- name: note_effect
INSERT INTO storm_effects (message) VALUES (:message);

-- name: pending
SELECT count(*) FROM twicesafe_outbox WHERE state <> 'delivered';
-- name: arrived
SELECT (SELECT count(*) FROM storm_deliveries), (SELECT count(*) FROM storm_effects);
-- name: all_sent
SELECT message, aggregate, place FROM storm_sent ORDER BY number;
-- name: all_deliveries
SELECT message FROM storm_deliveries ORDER BY number;
-- name: all_effects
SELECT message FROM storm_effects;
"""


class Sent(NamedTuple):
    """A message whose transaction committed as number `place` of its aggregate's."""

    message: str
    aggregate: str
    place: int


@cache
def _queries(dialect: Dialect) -> Queries:
    return Queries(dialect, _PLACEHOLDERS[dialect], rewrite=lambda _: choose(parse(_TEXT), dialect))


async def _ask(connection: Any, name: str, **parameters: Any) -> list[Any]:
    def steps(sql: Queries) -> Steps[list[Any]]:
        return list((yield _queries(sql.dialect)(name, **parameters)))

    return await arun(connection, steps)


async def in_transaction(store: AsyncStore, work: Callable[[Any], Any]) -> Any:
    """What `work` gives of a connection, in a transaction of the store's that is committed then."""
    async with store.transaction() as transaction:
        await transaction.begin()
        result = await work(transaction.connection)
        await transaction.commit()
        return result


async def _make(store: AsyncStore, *tables: str) -> None:
    for name in tables:

        def steps(sql: Queries, name: str = name) -> Steps[Dialect]:
            yield _queries(sql.dialect)(name)
            return sql.dialect

        async with store.transaction() as transaction:
            await transaction.begin()
            # MySQL has committed by then, and the store would take it for a handler's doing.
            if await arun(transaction.connection, steps) is not Dialect.MYSQL:
                await transaction.commit()


class SenderBooks:
    """Beside the outbox in `store`."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._outbox = AsyncOutbox(SOURCE)

    async def create(self, aggregates: int) -> None:
        """Make the tables, and a row for each aggregate."""
        await _make(self._store, "create_sent", "create_places")

        async def work(connection: Any) -> None:
            for number in range(aggregates):
                await _ask(connection, "open_aggregate", aggregate=named(number))

        await in_transaction(self._store, work)

    async def add(self, connection: Any, number: int, aggregate: str) -> Message:
        """Put a message into the outbox."""
        return await self._outbox.add(connection, TYPE, (KIND, aggregate), {"number": number})

    async def note(self, connection: Any, number: int, message: Message) -> None:
        """Write down that it commits, and as which of its aggregate's."""
        whose = message.aggregateid
        await _ask(connection, "next_place", aggregate=whose)
        await _ask(connection, "note_sent", number=number, message=message.id, aggregate=whose, same_aggregate=whose)

    async def is_sent(self, number: int) -> bool:
        """Whether its transaction committed."""
        return bool(await self._rows("is_sent", number=number))

    async def pending(self) -> int:
        """How many are not delivered."""
        rows = await self._rows("pending")
        return int(rows[0][0])

    async def sent(self) -> list[Sent]:
        """What committed."""
        return [Sent(*row) for row in await self._rows("all_sent")]

    async def _rows(self, name: str, **parameters: Any) -> list[Any]:
        found: list[Any] = await in_transaction(self._store, lambda one: _ask(one, name, **parameters))
        return found


class ConsumerBooks:
    """Beside the inbox in `store`."""

    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self.inbox = AsyncInbox(CONSUMER)

    async def create(self) -> None:
        """Make the tables."""
        await _make(self.store, "create_deliveries", "create_effects")

    async def delivered(self, connection: Any, message: str) -> None:
        """One more delivery."""
        await _ask(connection, "note_delivery", message=message)

    async def effect(self, connection: Any, message: Message) -> None:
        """What a message is to bring about, once."""
        await _ask(connection, "note_effect", message=message.id)

    async def take(self, message: Message) -> None:
        """Handle a delivery; returns when that is committed."""

        async def work(connection: Any) -> None:
            await self.delivered(connection, message.id)
            if await self.inbox.once(connection, message):
                await self.effect(connection, message)

        await in_transaction(self.store, work)

    async def arrived(self) -> tuple[int, int]:
        """How many deliveries and effects there were."""
        rows = await in_transaction(self.store, lambda one: _ask(one, "arrived"))
        return int(rows[0][0]), int(rows[0][1])

    async def deliveries(self) -> list[str]:
        """Ids, in the order in which they were handled."""
        rows = await in_transaction(self.store, lambda one: _ask(one, "all_deliveries"))
        return [row[0] for row in rows]

    async def effects(self) -> list[str]:
        """Ids."""
        rows = await in_transaction(self.store, lambda one: _ask(one, "all_effects"))
        return [row[0] for row in rows]


def named(aggregate: int) -> str:
    """An aggregate's id."""
    return f"order-{aggregate}"
