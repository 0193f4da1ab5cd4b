"""What a payment tells others: one event, by the outbox in its own transaction, or by hand after the commit."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from twicesafe.errors import NotDeliveredError
from twicesafe.outbox import AsyncOutbox, Message
from twicesafe.publishers.webhooks import WebhookPublisher
from twicesafe.storm.ledger import Ledger, Payment

SOURCE: Final = "/storm/payments"
TYPE: Final = "payment.made"
AGGREGATE: Final = "account"
SECRET: Final = "whsec_c3Rvcm0gb2YgcGF5bWVudHMgYW5kIGV2ZW50cw=="  # noqa: S105 - both ends are the storm's own

SUBJECT_HEADER: Final = "ce-subject"
"""Says which intent a webhook is about."""

TIMEOUT: Final = timedelta(seconds=3)
"""For an acknowledgement. One that does not come must not keep a round of the relay up to the end of its lease."""
TRIES: Final = 3
"""Of somebody who has no outbox."""


class Silent:
    """Tells nobody."""

    async def add(self, connection: Any, number: str, payment: Payment) -> None:
        """In the transaction of the payment that got `number`. StoreUnavailableError."""

    async def tell(self, number: str, payment: Payment) -> None:
        """Once that is committed."""


class ByOutbox(Silent):
    """Beside the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._outbox = AsyncOutbox(SOURCE)

    async def add(self, connection: Any, number: str, payment: Payment) -> None:
        aggregate = (AGGREGATE, payment.account)
        with self._ledger.errors():
            await self._outbox.add(connection, TYPE, aggregate, said(number, payment), subject=subject(payment))


class ByHand(Silent):
    """As services do that have no outbox: commit, then send it, some times if need be, and hope."""

    def __init__(self, port: int) -> None:
        self._publisher = publisher(port)

    async def tell(self, number: str, payment: Payment) -> None:
        data = json.dumps(said(number, payment)).encode()
        message = Message(uuid4().hex, SOURCE, TYPE, AGGREGATE, payment.account, data, subject(payment))
        for _ in range(TRIES):
            with suppress(NotDeliveredError):
                await self._publisher.publish(message)
                return


def publisher(port: int) -> WebhookPublisher:
    """To who listens on this port of 127.0.0.1."""
    return WebhookPublisher(f"http://127.0.0.1:{port}/events", secrets=SECRET, timeout=TIMEOUT)


def subject(payment: Payment) -> str:
    """Which intent it is about."""
    return subject_of(payment.run, payment.intent)


def subject_of(run: str, intent: int) -> str:
    """The same, for who knows no more than that."""
    return f"{run}/{intent}"


def said(number: str, payment: Payment) -> dict[str, Any]:
    """The event's data."""
    return {"number": number, **payment._asdict()}


def heard(data: bytes) -> tuple[str, Payment]:
    """The payment's number, and the payment, of an event's data."""
    fields = json.loads(data)
    return fields.pop("number"), Payment(**fields)
