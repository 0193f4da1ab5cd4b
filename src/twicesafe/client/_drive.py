"""The two loops that obey `attempts()`, and all that is written twice for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from twicesafe.client._layers import enter, leave
from twicesafe.client._underway import Underway
from twicesafe.client.ambient import Ambient, AsyncAmbient
from twicesafe.core.attempts import Answered, Failed, Send, Wait
from twicesafe.core.outcome import Outcome

R = TypeVar("R")


def drive(
    underway: Underway[R],
    attempt: Callable[[Send], Answered[R] | Failed[R]],
    ambient: Ambient,
    first: Answered[R] | Failed[R] | None = None,
) -> Outcome[R]:
    """Perform what is decided, until the outcome. `first` is what came of a first attempt that was made already."""
    outcome: Outcome[R] | None = None
    watch = underway.watch
    decisions = underway.decisions if watch is None else watch.over(underway.decisions, underway)
    event: Answered[R] | Failed[R] | float | None = None
    before = enter(underway)
    try:
        while True:
            try:
                step = decisions.send(event)
            except StopIteration as end:
                outcome = end.value
                break
            if isinstance(step, Wait):
                ambient.sleep(step.seconds)
                event = ambient.clock()
            elif first is not None:
                event, first = first, None
            else:
                event = attempt(step)
    finally:
        decisions.close()
        leave(before, underway, outcome)
    assert outcome is not None
    return outcome


async def adrive(
    underway: Underway[R],
    attempt: Callable[[Send], Awaitable[Answered[R] | Failed[R]]],
    ambient: AsyncAmbient,
    first: Answered[R] | Failed[R] | None = None,
) -> Outcome[R]:
    """`drive()`, for asyncio."""
    outcome: Outcome[R] | None = None
    watch = underway.watch
    decisions = underway.decisions if watch is None else watch.over(underway.decisions, underway)
    event: Answered[R] | Failed[R] | float | None = None
    before = enter(underway)
    try:
        while True:
            try:
                step = decisions.send(event)
            except StopIteration as end:
                outcome = end.value
                break
            if isinstance(step, Wait):
                await ambient.sleep(step.seconds)
                event = ambient.clock()
            elif first is not None:
                event, first = first, None
            else:
                event = await attempt(step)
    finally:
        decisions.close()
        leave(before, underway, outcome)
    assert outcome is not None
    return outcome
