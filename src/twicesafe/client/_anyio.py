"""Waiting under trio, and wherever else anyio runs. httpx2 and httpx bring anyio along; nothing else needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


async def sleep(seconds: float) -> None:
    """Let time pass."""
    await anyio.sleep(seconds)


@asynccontextmanager
async def limit(seconds: float) -> AsyncIterator[None]:
    """Cancel what runs in here after so many seconds, and raise TimeoutError."""
    with anyio.fail_after(seconds):
        yield
