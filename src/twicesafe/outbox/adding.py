"""Adds a message to the outbox, in the transaction of the effect that it speaks of.

Visible if and only if that transaction commits (I9), and delivered in the order of commits within its aggregate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import uuid4

from twicesafe.core.message import DEFAULT_DATA_LIMIT, JSON, Message, as_headers, check_text, checked
from twicesafe.errors import ConfigurationError, InvalidMessageError
from twicesafe.stores.callers_asyncio import arun
from twicesafe.stores.callers_blocking import run
from twicesafe.stores.sql.messages import add

__all__ = ["AsyncOutbox", "Outbox"]


class _Outbox:
    def __init__(
        self,
        source: str,
        *,
        data_limit: int = DEFAULT_DATA_LIMIT,
        carried: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        check_text("source", source)
        limit: object = data_limit
        if not isinstance(limit, int) or limit < 1:
            raise ConfigurationError(f"data_limit must be a whole number of bytes, not {limit!r}")
        self._source: Final = source
        self._data_limit: Final = data_limit
        self._carried: Final = carried

    def _made(
        self,
        type: str,  # noqa: A002 - CloudEvents' name
        aggregate: tuple[str, str],
        data: object,
        id: str | None,  # noqa: A002 - CloudEvents' name
        subject: str | None,
        datacontenttype: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
    ) -> Message:
        whose: object = aggregate
        if not isinstance(whose, tuple) or len(whose) != 2:
            raise InvalidMessageError("aggregate must be a pair of type and id, such as ('order', 'o-17')")
        if not isinstance(data, bytes):
            if datacontenttype != JSON:
                raise InvalidMessageError(f"data of {datacontenttype} must be bytes, not {data.__class__.__name__}")
            data = _json(data)
        lines = as_headers(headers)
        if self._carried is not None:
            own = {name for name, _ in lines}
            lines = (*lines, *[line for line in self._carried().items() if line[0] not in own])
        return checked(
            Message(
                id=str(uuid4()) if id is None else id,
                source=self._source,
                type=type,
                aggregatetype=aggregate[0],
                aggregateid=aggregate[1],
                data=data,
                subject=subject,
                datacontenttype=datacontenttype,
                headers=lines,
            ),
            self._data_limit,
        )


class Outbox(_Outbox):
    """Messages of one source, a URI reference such as `/orders`, written by blocking code.

    `data_limit` bounds a message's data, in bytes. `carried()` gives headers that each message has besides its own: by
    `twicesafe.opentelemetry.carried` it says in which trace it was made.
    """

    def add(
        self,
        connection: Any,
        type: str,  # noqa: A002 - CloudEvents' name
        aggregate: tuple[str, str],
        data: object,
        *,
        id: str | None = None,  # noqa: A002 - CloudEvents' name
        subject: str | None = None,
        datacontenttype: str = JSON,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> Message:
        """Write a message in the transaction that `connection` is in; the message, without its time.

        `connection` is sqlite3's, psycopg's, PyMySQL's, a Session or Connection of SQLAlchemy's, or Django's, or its
        alias; or what a handler got as its transaction's. `aggregate` is type and id of what the message is about:
        transactions that add to one aggregate go one after another, from here to their commits. `data` is bytes, or
        what becomes JSON. Without an `id` it gets a new UUID.

        InvalidMessageError, MessageExistsError (for an id that is in the outbox) and NotInTransactionError leave the
        transaction as it was. What the database says, a deadlock among it, comes as the driver's own error.
        """
        message = self._made(type, aggregate, data, id, subject, datacontenttype, headers)
        run(connection, lambda sql: add(sql, message, new=id is None))
        return message


class AsyncOutbox(_Outbox):
    """Outbox, for asyncio: with connections of aiosqlite, asyncpg, psycopg, asyncmy and SQLAlchemy, and Django's."""

    async def add(
        self,
        connection: Any,
        type: str,  # noqa: A002 - CloudEvents' name
        aggregate: tuple[str, str],
        data: object,
        *,
        id: str | None = None,  # noqa: A002 - CloudEvents' name
        subject: str | None = None,
        datacontenttype: str = JSON,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> Message:
        """See Outbox.add."""
        message = self._made(type, aggregate, data, id, subject, datacontenttype, headers)
        await arun(connection, lambda sql: add(sql, message, new=id is None))
        return message


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _json(data: object) -> bytes:
    try:
        return _ENCODER.encode(data).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(f"data must be bytes, or what becomes JSON: {error}") from None
