"""Messages of an outbox for the people who run it: what waits, what was set aside, and what they do about it.

    with closing(open_store("postgresql://app@host/shop")) as store:
        messages = Messages(store)
        for one in messages.listed(MessageState.PARKED):
            messages.retry(one.id, who="ann", why="the broker has its queue again")

Whatever is changed is in the store's audit trail, with who did it and why, before it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from os import urandom
from typing import Any, TypeVar

from twicesafe.core.delivery import MessageState
from twicesafe.core.message import check_text
from twicesafe.errors import ConfigurationError
from twicesafe.stores.callers_blocking import run
from twicesafe.stores.contract import AuditEntry, Store
from twicesafe.stores.sql.relaying import Listed, Waiting, data_of, discard, found, listed, retry, waiting
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Steps

__all__ = ["Listed", "MessageState", "Messages", "Waiting"]

R = TypeVar("R")

LOOK = 500
"""Messages read at a time."""


class Messages:
    """The messages in the outbox of `store`, a blocking one in SQLite, PostgreSQL or MySQL."""

    def __init__(self, store: Store) -> None:
        if not getattr(store, "transactional", False) or not hasattr(store, "audits"):
            raise ConfigurationError("an outbox is in a store with transactions: SQLite, PostgreSQL or MySQL")
        self._store: Any = store

    def listed(self, state: MessageState) -> Iterator[Listed]:
        """All in this state, in the order in which they were added. Read a few hundred at a time, and blocks nobody."""
        after = 0
        while rows := self._run(partial(listed, state=state, after=after, limit=LOOK)):
            yield from rows
            after = rows[-1].seq

    def find(self, message_id: str) -> Listed | None:
        """One message, whatever its state. None: it was never there, or was delivered and is deleted."""
        check_text("id", message_id)
        return self._run(lambda sql: found(sql, message_id))

    def data(self, message_id: str) -> bytes | None:
        """What the message says; it may be nothing for your eyes."""
        return self._run(lambda sql: data_of(sql, message_id))

    def waiting(self) -> Waiting:
        """How much waits, and since when."""
        return self._run(waiting)

    def retry(self, message_id: str, *, who: str, why: str) -> bool:
        """Let it be tried at once, in its place before the later ones of its aggregate.

        False where there is none that waits or was set aside; nothing was changed.
        """
        return self._change(message_id, "retry the message", lambda sql: retry(sql, message_id), who, why)

    def discard(self, message_id: str, *, who: str, why: str) -> bool:
        """Give it up: it is never delivered, and the later ones of its aggregate flow. As `retry` otherwise.

        One that is under way to its receiver just now may arrive all the same.
        """
        return self._change(message_id, "discard the message", lambda sql: discard(sql, message_id), who, why)

    def trail(self, message_id: str) -> list[AuditEntry]:
        """What people did about it, oldest first, whether or not it is still there."""
        trail: list[AuditEntry] = self._store.audits(_digest(message_id))
        return trail

    def _change(
        self, message_id: str, action: str, steps: Callable[[Queries], Steps[bool]], who: str, why: str
    ) -> bool:
        one = self.find(message_id)
        if one is None:
            return False
        entry = AuditEntry(
            urandom(16), 0, _digest(one.id), one.aggregatetype, one.type, one.aggregateid, action, who, why
        )
        self._store.audit(entry)
        changed = self._run(steps)
        self._store.audited(entry, "done" if changed else "refused")
        return changed

    def _run(self, steps: Callable[[Queries], Steps[R]]) -> R:
        with self._store.transaction() as transaction:
            transaction.begin()
            result = run(transaction.connection, steps)
            transaction.commit()
            return result


def _digest(message_id: str) -> bytes:
    """What the trail knows a message by. No key's digest is made of the like."""
    return sha256(b"message\0" + message_id.encode("utf-8", "surrogatepass")).digest()
