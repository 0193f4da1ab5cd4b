"""Time and chance, as the client meets them. Tests hand in their own."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from twicesafe.elapsed import elapsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambient:
    """`clock` is steady, `wall` is the calendar's, both in seconds; `fraction` draws from [0, 1)."""

    clock: Callable[[], float] = elapsed
    wall: Callable[[], float] = time.time
    fraction: Callable[[], float] = random.random
    sleep: Callable[[float], object] = time.sleep


def _in_asyncio() -> bool:
    """Whether whoever asks runs in a task of asyncio's. One of trio's may still have an asyncio loop for its host."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


async def sleep(seconds: float) -> None:
    """Let time pass, under asyncio as under trio."""
    if _in_asyncio():
        await asyncio.sleep(seconds)
    else:
        from twicesafe.client import _anyio

        await _anyio.sleep(seconds)


def limit(seconds: float) -> AbstractAsyncContextManager[Any]:
    """Cancel what runs inside after so many seconds, under asyncio as under trio, and raise TimeoutError."""
    if _in_asyncio():
        return asyncio.timeout(seconds)
    from twicesafe.client import _anyio

    return _anyio.limit(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncAmbient:
    """Ambient, for asyncio and trio. `limit` cancels what runs inside after so many seconds and raises TimeoutError."""

    clock: Callable[[], float] = elapsed
    wall: Callable[[], float] = time.time
    fraction: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[object]] = sleep
    limit: Callable[[float], AbstractAsyncContextManager[Any]] = limit


REAL = Ambient()
ASYNC_REAL = AsyncAmbient()
