"""What stands between the relays and the consumer: a broker, or the consumer's own address."""

from __future__ import annotations

from typing import Any, Final, Protocol

from twicesafe.core.delivery import aggregate_digest, shard_of
from twicesafe.outbox import Message
from twicesafe.storm.fleet import Fleet

LANES: Final = 8
"""Queues or subjects, each with the messages of its own aggregates, and one reader that takes them in order."""

AGAIN: Final = 0.2
"""Seconds before what failed is tried again."""


class Way(Protocol):
    """One of the ways, open while the storm lasts."""

    @property
    def told(self) -> dict[str, Any]:
        """What relays and the consumer have to know of it."""

    async def restart(self, consumer: Fleet, *, crash: bool) -> None:
        """Restart what stands there, in good order or by SIGKILL."""


def lane_of(message: Message) -> str:
    """The same for all messages of an aggregate."""
    return str(shard_of(aggregate_digest(message.aggregatetype, message.aggregateid), LANES))
