"""A broker for tests: takes the messages of a relay and hands them to a consumer, with the faults that brokers have."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, Never

from twicesafe.core.message import Message
from twicesafe.errors import ConfigurationError, NotDeliveredError, RefusedError

MOST: Final = 10
"""Deliveries of one message whose consumer fails each time."""


class BrokerFault(StrEnum):
    """What is to happen to a message that is published."""

    NEVER = "never"
    """It is not taken, and not acknowledged."""
    LOST = "lost"
    """It is taken; the acknowledgement is lost."""
    LATE = "late"
    """It is taken; it is acknowledged once the test says so: `until_late()`, then `acknowledge()`."""
    TWICE = "twice"
    """It is taken, and handed out twice."""
    OVERTAKEN = "overtaken"
    """It is taken, and handed out behind the one that comes next."""
    REFUSED = "refused"
    """It can never be delivered."""

    @classmethod
    def _missing_(cls, value: object) -> Never:
        raise ConfigurationError(f"a fault of a broker is one of {', '.join(cls)}, not {value!r}")


class FakeBroker:
    """A Publisher for a Relay, and a queue for consumers. One event loop at a time."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        """All that was taken, in its order, as often as it was."""
        self.waiting: deque[Message] = deque()
        """What has still to be handed out."""
        self._faults: deque[BrokerFault] = deque()
        self._overtaken: list[Message] = []
        self._late: set[asyncio.Future[None]] = set()
        self._awaiting: list[asyncio.Future[None]] = []

    def arm(self, fault: BrokerFault | str, times: int = 1) -> None:
        """Let the next message that is published meet `fault`, or the next `times`; one fault after the other."""
        self._faults.extend([BrokerFault(fault)] * times)

    async def publish(self, message: Message) -> None:
        """See Publisher.publish."""
        fault = self._faults.popleft() if self._faults else None
        if fault is BrokerFault.NEVER:
            raise NotDeliveredError("the broker did not take the message")
        if fault is BrokerFault.REFUSED:
            raise RefusedError("the broker refused the message for good")
        self.taken.append(message)
        if fault is BrokerFault.OVERTAKEN:
            self._overtaken.append(message)
        else:
            self.waiting.extend([message] * (2 if fault is BrokerFault.TWICE else 1))
            self.waiting.extend(self._overtaken)
            self._overtaken = []
        if fault is BrokerFault.LOST:
            raise NotDeliveredError("the broker's acknowledgement was lost")
        if fault is BrokerFault.LATE:
            await self._acknowledged()

    async def _acknowledged(self) -> None:
        late = asyncio.get_running_loop().create_future()
        self._late.add(late)
        for watching in self._awaiting:
            if not watching.done():
                watching.set_result(None)
        try:
            await late
        finally:
            self._late.discard(late)

    async def until_late(self) -> None:
        """Return when a message waits for its acknowledgement, which `acknowledge()` gives."""
        if not self._late:
            watching = asyncio.get_running_loop().create_future()
            self._awaiting.append(watching)
            try:
                await watching
            finally:
                self._awaiting.remove(watching)

    def acknowledge(self) -> int:
        """Acknowledge what is late, within its event loop. How many messages that were."""
        waiting = [late for late in self._late if not late.done()]
        for late in waiting:
            late.set_result(None)
        return len(waiting)

    def deliver(self, consumer: Callable[[Message], object], *, times: int = 1, most: int = MOST) -> int:
        """Hand each waiting message to `consumer`, `times` times. How many deliveries that were.

        One whose consumer raises is handed out again, behind the others; for the `most`-th time that is raised.
        """
        handed = _Handed(self._all(times), most)
        for message in handed:
            try:
                consumer(message)
            except Exception as error:  # noqa: BLE001 - a broker does not care
                handed.again(message, error)
        return handed.deliveries

    async def adeliver(
        self, consumer: Callable[[Message], Awaitable[object]], *, times: int = 1, most: int = MOST
    ) -> int:
        """deliver, for consumers that are awaited."""
        handed = _Handed(self._all(times), most)
        for message in handed:
            try:
                await consumer(message)
            except Exception as error:  # noqa: BLE001 - a broker does not care
                handed.again(message, error)
        return handed.deliveries

    def _all(self, times: int) -> deque[Message]:
        found = deque(message for message in (*self.waiting, *self._overtaken) for _ in range(times))
        self.waiting.clear()
        self._overtaken = []
        return found


class _Handed:
    """What is being handed out."""

    def __init__(self, queue: deque[Message], most: int) -> None:
        self._queue = queue
        self._most = most
        self._failed: dict[tuple[str, str], int] = {}
        self.deliveries = 0

    def __iter__(self) -> _Handed:
        return self

    def __next__(self) -> Message:
        if not self._queue:
            raise StopIteration
        self.deliveries += 1
        return self._queue.popleft()

    def again(self, message: Message, error: Exception) -> None:
        which = (message.source, message.id)
        self._failed[which] = self._failed.get(which, 0) + 1
        if self._failed[which] >= self._most:
            error.add_note(f"{message.type} {message.id} was handed out {self._most} times, and its consumer failed")
            raise error
        self._queue.append(message)
