"""Work that goes on to its end when the task that began it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any


async def undisturbed(work: Coroutine[Any, Any, None], going: set[asyncio.Task[None]]) -> None:
    """Do `work`. Where it has to wait it becomes a task of its own, which is in `going` until it has ended.

    Most of what has to be given back needs no wait, and a task costs more than giving it back.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return
    task = asyncio.ensure_future(_the_rest(work, awaited))
    going.add(task)
    task.add_done_callback(going.discard)
    await asyncio.shield(task)


async def _the_rest(work: Coroutine[Any, Any, None], awaited: Any) -> None:
    await _from(work, awaited)


@coroutine
def _from(work: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    """What `work` awaits is awaited once more, then it goes on."""
    try:
        while True:
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the work to see
                awaited = work.throw(error)
            else:
                awaited = work.send(sent)
    except StopIteration:
        return
