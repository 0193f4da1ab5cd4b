"""The two loops that obey `attempts()`, and all that is written twice for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from twicesafe.client.ambient import Ambient, AsyncAmbient
from twicesafe.core.attempts import Answered, Attempts, Failed, Send, Wait
from twicesafe.core.outcome import Outcome

R = TypeVar("R")


def drive(decisions: Attempts[R], attempt: Callable[[Send], Answered[R] | Failed[R]], ambient: Ambient) -> Outcome[R]:
    """Perform what is decided, until the outcome."""
    event: Answered[R] | Failed[R] | float
    try:
        step = next(decisions)
        while True:
            if isinstance(step, Wait):
                ambient.sleep(step.seconds)
                event = ambient.clock()
            else:
                event = attempt(step)
            try:
                step = decisions.send(event)
            except StopIteration as end:
                outcome: Outcome[R] = end.value
                return outcome
    finally:
        decisions.close()


async def adrive(
    decisions: Attempts[R], attempt: Callable[[Send], Awaitable[Answered[R] | Failed[R]]], ambient: AsyncAmbient
) -> Outcome[R]:
    """`drive()`, for asyncio."""
    event: Answered[R] | Failed[R] | float
    try:
        step = next(decisions)
        while True:
            if isinstance(step, Wait):
                await ambient.sleep(step.seconds)
                event = ambient.clock()
            else:
                event = await attempt(step)
            try:
                step = decisions.send(event)
            except StopIteration as end:
                outcome: Outcome[R] = end.value
                return outcome
    finally:
        decisions.close()
