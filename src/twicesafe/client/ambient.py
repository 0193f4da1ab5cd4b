"""Time and chance, as the client meets them. Tests hand in their own."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambient:
    """`clock` is steady, `wall` is the calendar's, both in seconds; `fraction` draws from [0, 1)."""

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    fraction: Callable[[], float] = random.random
    sleep: Callable[[float], object] = time.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncAmbient:
    """Ambient, for asyncio. `limit` cancels what runs inside it after so many seconds and raises TimeoutError."""

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    fraction: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    limit: Callable[[float], AbstractAsyncContextManager[Any]] = asyncio.timeout


REAL = Ambient()
ASYNC_REAL = AsyncAmbient()
