"""Blocking work for those who must not block, under asyncio and under trio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` gives, done in a thread of whichever loop runs here. Cancelled, it goes on to its end by itself."""
    # Who runs under trio has imported it.
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        given: T = await trio.to_thread.run_sync(work, abandon_on_cancel=True)
        return given
    return await asyncio.to_thread(work)
