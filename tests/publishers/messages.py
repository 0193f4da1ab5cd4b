"""Messages for tests."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

from twicesafe.core.message import Message, checked

_NUMBERS = count(1)

PATIENT = timedelta(seconds=60)
"""A time-out for what is to succeed, on a busy machine."""


def made(about: str = "order-1", kind: str = "order.placed", data: bytes = b'{"total":"12.50"}') -> Message:
    """Another message of an aggregate."""
    return checked(
        Message(
            id=f"message-{next(_NUMBERS)}",
            source="/shop",
            type=kind,
            aggregatetype="orders",
            aggregateid=about,
            data=data,
            subject="Größe 44",
            time="2026-11-30T12:00:00.000000Z",
            headers=(("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),),
        )
    )
