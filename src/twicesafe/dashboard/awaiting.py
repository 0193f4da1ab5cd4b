"""Waits in a thread for what ends in an event loop, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

ANSWERS_WITHIN: Final = 20.0
"""Seconds that a reconciler of asyncio may take. Until then it holds a thread, of which an application has forty."""


def waited_for(answer: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> Any:
    """What it comes to. TimeoutError where it does not; it is cancelled then."""

    async def awaited() -> Any:
        return await answer

    asked = asyncio.run_coroutine_threadsafe(awaited(), loop)
    try:
        return asked.result(ANSWERS_WITHIN)
    except TimeoutError:
        asked.cancel()
        raise
