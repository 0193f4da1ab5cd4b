"""Lets a consumer handle each message once: its id is recorded with the effect, in one transaction.

    inbox = Inbox("billing")

    def on_message(message):
        with psycopg.connect(dsn) as connection:
            if inbox.once(connection, message):
                connection.execute("INSERT INTO invoices ...")
        acknowledge(message)  # now that it is committed

A handler that fails leaves nothing behind, so the next delivery is handled as if it were the first (I9).
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final, NamedTuple

from twicesafe.core.delivery import SEQUENCE, aggregate_digest, micros
from twicesafe.core.keys import key_hint
from twicesafe.core.message import Message, check_text
from twicesafe.errors import InvalidMessageError
from twicesafe.observe import Event, Observer, counts, log_events, tell
from twicesafe.stores.callers_asyncio import arun
from twicesafe.stores.callers_blocking import run
from twicesafe.stores.sql.messages import forget, handle, handle_in_order, purge_inbox
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Steps

__all__ = ["AsyncInbox", "Inbox", "Received"]

_PLACE: Final = re.compile("[0-9]{1,19}")
"""As the relay writes it. What has more digits is nobody's place, and may be more than Python reads."""


class Received(NamedTuple):
    """What identifies a message that came in, where it is no Message. Ids are unique within their source."""

    id: str
    source: str
    aggregate: str | None = None
    """Whose order it keeps, with the position in it; or neither."""
    position: int | None = None

    @classmethod
    def in_order(cls, message: Message) -> Received:
        """The message with its place in its aggregate's order, as twicesafe's relay sends it along.

        For messages that say how things stand: `once` is False for one that comes after a later one of its aggregate.
        InvalidMessageError where it came without.
        """
        place = dict(message.headers).get(SEQUENCE, "")
        if not message.aggregateid or _PLACE.fullmatch(place) is None:
            raise InvalidMessageError(
                "the message came without its aggregate, or without its place in that one's order"
            )
        whose = aggregate_digest(message.aggregatetype, message.aggregateid).hex()
        return cls(message.id, message.source, whose, int(place))


class _Inbox:
    def __init__(self, consumer: str, *, observer: Observer = log_events) -> None:
        check_text("consumer", consumer)
        self._consumer: Final = consumer
        self._observer: Final = observer
        self._counts: Final = counts(observer)

    def _told(self, message: Received, *, handles: bool) -> bool:
        """The same, once whoever watches knows. Whether the transaction commits is not known yet."""
        if self._counts or not handles:
            name = "inbox.handled" if handles else "inbox.duplicate"
            tell(self._observer, Event(name, self._consumer, key_hint(message.id), loud=False))
        return handles

    def _handle(self, sql: Queries, message: Received) -> Steps[bool]:
        if message.aggregate is None or message.position is None:
            return handle(sql, self._consumer, message.source, message.id)
        return handle_in_order(sql, self._consumer, message.source, message.id, message.aggregate, message.position)

    def _forget(self, sql: Queries, message: Received) -> Steps[bool]:
        return forget(sql, self._consumer, message.source, message.id)


class Inbox(_Inbox):
    """The messages of one consumer, handled by blocking code. Consumers do not know of each other's.

    `observer` is told of each message that is not to be handled, which is a duplicate or late.
    """

    def once(self, connection: Any, message: Message | Received) -> bool:
        """Whether to handle the message now, in the transaction that `connection` is in. True exactly once.

        `connection` is what Outbox.add takes. While another consumer of the same name handles it, this waits: False
        where that commits, True where it rolls back. At REPEATABLE READ PostgreSQL may ask instead, by an error, that
        the transaction be begun again. False too for one that comes late: whose aggregate has had a later position.
        False or not, acknowledge the message only once the transaction is committed.

        InvalidMessageError where id or source is empty or missing; NotInTransactionError as Outbox.add.
        """
        received = _received(message)
        return self._told(received, handles=run(connection, lambda sql: self._handle(sql, received)))

    def forget(self, connection: Any, message: Message | Received) -> bool:
        """Let the message be handled anew, once this transaction is committed. Whether it had been handled."""
        received = _received(message)
        return run(connection, lambda sql: self._forget(sql, received))

    def purge(self, connection: Any, older_than: timedelta, limit: int = 1000) -> int:
        """Forget at most `limit` of all consumers' messages that were handled longer ago; how many there were.

        One that is delivered once more after that is handled once more: keep them longer than any sender tries.
        """
        keep_us = micros("older_than", older_than)
        return run(connection, lambda sql: purge_inbox(sql, keep_us, limit))


class AsyncInbox(_Inbox):
    """Inbox, for asyncio."""

    async def once(self, connection: Any, message: Message | Received) -> bool:
        """See Inbox.once."""
        received = _received(message)
        return self._told(received, handles=await arun(connection, lambda sql: self._handle(sql, received)))

    async def forget(self, connection: Any, message: Message | Received) -> bool:
        """See Inbox.forget."""
        received = _received(message)
        return await arun(connection, lambda sql: self._forget(sql, received))

    async def purge(self, connection: Any, older_than: timedelta, limit: int = 1000) -> int:
        """See Inbox.purge."""
        keep_us = micros("older_than", older_than)
        return await arun(connection, lambda sql: purge_inbox(sql, keep_us, limit))


def _received(message: Message | Received) -> Received:
    received = Received(message.id, message.source) if isinstance(message, Message) else message
    if not isinstance(received, Received):
        raise InvalidMessageError(f"a message is a Message or a Received, not a {type(message).__name__}")
    check_text("id", received.id)
    check_text("source", received.source)
    if (received.aggregate is None) != (received.position is None):
        raise InvalidMessageError("aggregate and position belong together: a message has both, or neither")
    if received.aggregate is not None:
        check_text("aggregate", received.aggregate)
        position: object = received.position
        if not isinstance(position, int) or isinstance(position, bool) or not 0 <= position < 2**63:
            raise InvalidMessageError(f"position must be a whole number of 0 or more, not {position!r}")
    return received
