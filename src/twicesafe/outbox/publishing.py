"""What the relay asks of whoever takes messages to a broker or a receiver, and what it makes of their failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Protocol

from twicesafe.core.delivery import LONGEST_ASKED
from twicesafe.core.message import Message
from twicesafe.core.record import Micros
from twicesafe.daemons import in_daemon
from twicesafe.errors import ConfigurationError, NotDeliveredError, RefusedError

__all__ = ["Publisher", "PublishesMany", "answered", "as_publisher", "asked_of", "ends_round", "said"]


class Publisher(Protocol):
    """Takes one message to where it belongs. May have `aclose()` besides; whoever made it calls that."""

    async def publish(self, message: Message) -> None:
        """Return only when the receiver has acknowledged the message.

        RefusedError where it can never be delivered. Anything else that is raised means: try again later; the message
        may have arrived all the same, and comes again under the same id.
        """


class PublishesMany(Protocol):
    """What a Publisher may have besides; where it is there, the relay waits for many acknowledgements at once."""

    async def publish_many(self, messages: Sequence[Message]) -> list[BaseException | None]:
        """What came of each, in the order given: None where it was acknowledged, else what `publish` would raise.

        Each aggregate occurs at most once in a call.
        """


class _Function:
    def __init__(self, function: Callable[[Message], Any]) -> None:
        self._function = function
        self._waits = iscoroutinefunction(function)

    async def publish(self, message: Message) -> None:
        if self._waits:
            await self._function(message)
        else:
            # Of asyncio's own threads there are few: with as many that hang nothing would go out any more.
            await in_daemon(partial(self._function, message), "twicesafe-publisher")


def as_publisher(publisher: Publisher | Callable[[Message], Any]) -> Publisher:
    """A publisher as it is; a function of a message, made into one. A blocking one has a thread for each."""
    if callable(getattr(publisher, "publish", None)):
        return publisher  # type: ignore[return-value]  # its method says so
    if callable(publisher):
        return _Function(publisher)
    raise ConfigurationError(
        f"a publisher has `async def publish(message)`, or is a function of a message; not {type(publisher).__name__}"
    )


def answered(outcomes: Sequence[BaseException | None], asked: int) -> Sequence[BaseException | None]:
    """What `publish_many` returned. NotDeliveredError where nobody knows whose outcomes those are."""
    if len(outcomes) != asked:
        raise NotDeliveredError(f"publish_many answered for {len(outcomes)} of {asked} messages")
    return outcomes


def ends_round(failure: BaseException) -> bool:
    """Whether what a publisher raised is not its own: what ends the process, or the cancellation of whoever runs it."""
    if isinstance(failure, asyncio.CancelledError):
        # Clients raise it too, where a task of theirs was cancelled.
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(failure, KeyboardInterrupt | SystemExit | GeneratorExit)


def said(error: BaseException) -> str:
    """The class alone of what is not ours: its text may repeat the message."""
    ours = isinstance(error, RefusedError | NotDeliveredError)
    return f"{type(error).__name__}: {error}" if ours else type(error).__name__


def asked_of(error: BaseException) -> Micros:
    """For how long the receiver wants to be left alone."""
    asked = error.retry_after if isinstance(error, NotDeliveredError) else None
    # It may be infinite, or no number.
    return int(min(asked * 1_000_000, LONGEST_ASKED)) if asked is not None and asked > 0 else 0
