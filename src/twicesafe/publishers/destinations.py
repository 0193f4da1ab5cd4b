"""Where a message goes within a broker: one place for all, or what a function says of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

from twicesafe.core.message import Message
from twicesafe.errors import ConfigurationError, RefusedError

Destination: TypeAlias = str | Callable[[Message], str]
"""A name for all messages, or a function of a message that gives its name."""

DEFAULT_TIMEOUT: Final = timedelta(seconds=10)
"""How long an acknowledgement is waited for, connecting included."""


def of_type(message: Message) -> str:
    """A message's own type, `order.placed`, say."""
    return message.type


def naming(name: str, destination: Destination) -> Callable[[Message], str]:
    """A function of a message, which raises RefusedError where it finds no name."""
    if callable(destination):
        return lambda message: _named(name, destination(message))
    if not destination:
        raise ConfigurationError(f"{name} is empty: give a name, or a function of a message")
    return lambda _message: destination


def _named(name: str, found: object) -> str:
    if isinstance(found, str) and found:
        return found
    raise RefusedError(f"the function given as {name} gave no name for this message")


def seconds(timeout: timedelta) -> float:
    """A timeout as the clients take it."""
    if timeout <= timedelta(0):
        raise ConfigurationError(f"timeout must be above 0, not {timeout}")
    return timeout.total_seconds()


async def each(
    publish: Callable[[Message], Awaitable[None]], messages: Sequence[Message]
) -> list[BaseException | None]:
    """Publish all at once on one connection, and say of each what came of it."""
    return await asyncio.gather(*(publish(message) for message in messages), return_exceptions=True)
