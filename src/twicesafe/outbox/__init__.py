"""Messages that are part of the transaction they speak of, and what brings them to their receivers.

outbox = Outbox("/orders")

with psycopg.connect(dsn) as connection:
    connection.execute("INSERT INTO orders ...")
    outbox.add(connection, "order.placed", ("order", "o-17"), {"total": 42})
"""

from __future__ import annotations

from twicesafe.core.delivery import DeliveryPolicy, Poison
from twicesafe.core.message import Message, ce_headers
from twicesafe.outbox.adding import AsyncOutbox, Outbox
from twicesafe.outbox.publishing import Publisher, PublishesMany

__all__ = [
    "AsyncOutbox",
    "DeliveryPolicy",
    "Message",
    "Outbox",
    "Poison",
    "Publisher",
    "PublishesMany",
    "ce_headers",
]
