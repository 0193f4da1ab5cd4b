"""The rounds of one of a worker's parts: one looks at a time, and one that hangs keeps its place beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final, NamedTuple

from twicesafe.outbox.relay import Relay

LONG: Final = 30.0
"""Seconds after which a round begins with nothing more: what it has left is found by the next one."""

HANGS: Final = 15.0
"""Seconds in which what is under way then may end. After that the next round begins beside it."""

MOST: Final = 8
"""Rounds of one part that may hang at a time. With so many of them it waits for one to end, and is late."""

LATE: Final = 10
"""A part is late that has finished no round for so many times its pause, and for a minute at least."""


HANGING: Final = object()
"""What came of a round that hangs."""


class Health(NamedTuple):
    """How one of a worker's parts is doing. `since` is how many seconds ago it finished a round; None: never yet.

    Of a relay `pending`, `oldest` and `parked` are counted every few seconds; they are None for other parts.
    """

    part: str
    rounds: int
    failures: int
    since: float | None
    late: bool
    pending: int | None = None
    """Messages that wait in the outbox, whichever relay they are for."""
    oldest: float | None = None
    """For how many seconds the oldest of them has waited; None where none does."""
    parked: int | None = None
    hanging: int = 0
    """Rounds that hang in what they have begun, while others go on."""


class EndedError(Exception):
    """A part was ended by what is no Exception. Asyncio would end the whole loop for some of those."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class _Stopping(threading.Event):
    """Of one round, which stops with all the others as well."""

    def __init__(self, halt: threading.Event) -> None:
        super().__init__()
        self._halt = halt

    def is_set(self) -> bool:
        return super().is_set() or self._halt.is_set()


class Rounds:
    """`begin` begins a round, which begins nothing more once the event that it is given is set.

    `may_hang`: two rounds of it do each other no harm. `halt` stops all.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[threading.Event], Awaitable[Any]],
        every: float,
        halt: threading.Event,
        *,
        may_hang: bool = False,
        relay: Relay | None = None,
    ) -> None:
        self.name = name
        self.every = every
        self.relay = relay
        """Of a relay: it is woken by hints, and leaves its shards after the last round."""
        self.awake = asyncio.Event()
        """Set where there is something to look for at once."""
        self.rounds = self.failures = 0
        self.finished = monotonic()
        self.hanging: set[asyncio.Task[Any]] = set()
        self.ended: EndedError | None = None
        """By what, where that was a round that hung."""
        self._begin = begin
        self._halt = halt
        self._long = LONG if may_hang else None

    def health(self) -> Health:
        """As of now."""
        since = monotonic() - self.finished
        late = since > max(60.0, LATE * self.every)
        health = Health(self.name, self.rounds, self.failures, since if self.rounds else None, late)
        health = health._replace(hanging=len(self.hanging))
        counted = None if self.relay is None else self.relay.counted
        if counted is None:
            return health
        oldest = None if counted.oldest_us is None else counted.oldest_us / 1_000_000
        return health._replace(pending=counted.pending, oldest=oldest, parked=counted.parked)

    @property
    def has_place(self) -> bool:
        """Whether another round may begin."""
        return len(self.hanging) < MOST

    async def one(self, ended: Callable[[asyncio.Task[Any]], object]) -> Any:
        """One round: what it gave, or HANGING. Then it goes on by itself, and `ended` is told of its end.

        EndedError where it was ended by what is no Exception.
        """
        stopping = _Stopping(self._halt)
        task = asyncio.create_task(_round(self._begin(stopping)))
        try:
            await asyncio.wait({task}, timeout=self._long)
            if not task.done() and self._long is not None:
                stopping.set()
                await asyncio.wait({task}, timeout=HANGS)
                if not task.done() and not self._halt.is_set():
                    self.hanging.add(task)
                    task.add_done_callback(self.hanging.discard)
                    task.add_done_callback(ended)
                    return HANGING
                await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        return task.result()


async def _round(begun: Awaitable[Any]) -> Any:
    try:
        return await begun
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise EndedError(error) from error
