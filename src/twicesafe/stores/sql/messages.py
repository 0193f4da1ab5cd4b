"""Outbox and inbox as rows: every method as steps, for a transaction that is the caller's.

A statement of these that writes answers with a row for each row written, and with none where its unique key was there:
on MySQL, where that is an error, whoever performs it says so (see twicesafe.stores.callers).
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from twicesafe.core.delivery import aggregate_digest, shard_of
from twicesafe.core.message import Message
from twicesafe.core.record import Micros
from twicesafe.errors import MessageExistsError
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries, Source, choose, parse
from twicesafe.stores.steps import Steps

TURNS: Final = 4096
"""Rows of MySQL's twicesafe_outbox_turns."""

SQLITE_NOW: Final = "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"
"""The host's clock, which all processes on a file share. The caller's connection has no function of the store's."""


@cache
def message_queries(dialect: Dialect, placeholder: Placeholder, now_sql: str | None = None) -> Queries:
    """The statements. `now_sql` replaces the database's clock; only tests have a reason to set it."""
    if now_sql is None and dialect is Dialect.SQLITE:
        now_sql = SQLITE_NOW
    return Queries(dialect, placeholder, now_sql=now_sql, rewrite=lambda _: choose(_sources(), dialect))


@cache
def _sources() -> tuple[Source, ...]:
    return parse(files("twicesafe.stores.sql").joinpath("messages.sql").read_text(encoding="utf-8"))


def add(sql: Queries, message: Message, *, new: bool = False) -> Steps[int]:
    """Write a message that was checked; where it stands in its aggregate's order, or 0 where that is not told.

    MessageExistsError where its id is in the outbox already, unless it was just drawn: `new`.
    """
    digest = aggregate_digest(message.aggregatetype, message.aggregateid)
    aggregate = int.from_bytes(digest[:8], "big", signed=True)
    only_adds = new and sql.dialect is Dialect.POSTGRESQL
    rows = yield sql(
        "add_new" if only_adds else "add",
        id=message.id,
        aggregatetype=message.aggregatetype,
        aggregateid=message.aggregateid,
        type=message.type,
        payload=message.data,
        source=message.source,
        subject=message.subject,
        content_type=message.datacontenttype,
        headers=json.dumps(dict(message.headers), ensure_ascii=False) if message.headers else None,
        aggregate=aggregate,
        shard=shard_of(digest),
        turn=aggregate % TURNS,
    )
    if only_adds:
        # It is written, or was an error. In a pipeline of psycopg's nobody knows of how many rows.
        return 0
    if not rows:
        raise MessageExistsError(
            f"a message {message.id!r} is in the outbox already, so nothing was written: make an id for each message"
        )
    return rows[0][0] if rows[0] else 0


def handle(sql: Queries, consumer: str, source: str, message_id: str) -> Steps[bool]:
    """Whether this is the one time that the consumer is to handle it."""
    digest = inbox_digest(consumer, source, message_id)
    return bool((yield sql("handle", digest=digest, consumer=consumer, source=source, id=message_id)))


def handle_in_order(
    sql: Queries, consumer: str, source: str, message_id: str, aggregate: str, position: int
) -> Steps[bool]:
    """The same, and the consumer has not handled a later one of the aggregate either."""
    if not (yield from handle(sql, consumer, source, message_id)):
        return False
    digest = inbox_digest(consumer, source, aggregate)
    where = {"digest": digest, "consumer": consumer, "source": source, "aggregate": aggregate}
    rows = yield sql("advance_cursor", **where, position=position)
    if sql.dialect is not Dialect.MYSQL:
        return bool(rows)
    reached: int = (yield sql("cursor", digest=digest))[0][0]
    return reached == position


def forget(sql: Queries, consumer: str, source: str, message_id: str) -> Steps[bool]:
    """Let the consumer handle it anew. Whether it was there."""
    return bool((yield sql("forget", digest=inbox_digest(consumer, source, message_id))))


def purge_inbox(sql: Queries, keep_us: Micros, limit: int) -> Steps[int]:
    """Forget at most `limit` of those that were handled `keep_us` ago. How many there were."""
    if sql.dialect is not Dialect.MYSQL:
        return len((yield sql("purge_inbox", keep_us=keep_us, limit=limit)))
    ended = yield sql("ended_inbox", keep_us=keep_us, limit=limit)
    if not ended:
        return 0
    return len((yield sql("purge_inbox", digests=json.dumps([row[0].hex() for row in ended]))))


def inbox_digest(consumer: str, source: str, name: str) -> bytes:
    """What the inbox knows a message, or an aggregate, by. Joined so that no two can share it."""
    parts = [part.encode() for part in (consumer, source)]
    return sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts) + name.encode()).digest()
