"""What a relay tells those who count, and what it does within for those who trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from twicesafe.core.keys import key_hint
from twicesafe.core.message import Message
from twicesafe.core.record import Micros
from twicesafe.observe import Event, Observer, Work, around, counts, tell, traces


def publishing(observer: Observer, messages: list[Message]) -> AbstractContextManager[object]:
    """What whoever traces wants around these, as they are published."""
    if not traces(observer):
        return nullcontext()
    types = {message.type for message in messages}
    hint = key_hint(messages[0].id) if len(messages) == 1 else ""
    return around(observer, Work("publish", types.pop() if len(types) == 1 else "", hint, tuple(messages)))


def delivered_of(observer: Observer, messages: Iterable[Message]) -> list[Event]:
    """How many of each type have arrived, for those who count."""
    if counts(observer):
        types = Counter(message.type for message in messages)
        return [Event("message.delivered", kind, "", loud=False, amount=many) for kind, many in types.items()]
    return []


def tell_waiting(observer: Observer, pending: int, oldest_us: Micros | None, parked: int) -> None:
    """How much waits, and since when, for those who count."""
    if counts(observer):
        oldest = 0.0 if oldest_us is None else oldest_us / 1_000_000
        tell(observer, Event("outbox.pending", "", "", loud=False, amount=pending, seconds=oldest))
        tell(observer, Event("outbox.parked", "", "", loud=False, amount=parked))
