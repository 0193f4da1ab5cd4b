"""Opens a database, which in a storm may not be there at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.urls import open_async_store

PATIENCE: Final = 20.0
"""Seconds a starting process waits for its database."""


@asynccontextmanager
async def reached(url: str) -> AsyncIterator[AsyncStore]:
    """The store at `url`, once it is there and has its tables."""
    store = open_async_store(url)
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await store.check_schema()
                except StoreUnavailableError:
                    await asyncio.sleep(0.1)
                else:
                    break
        yield store
    finally:
        await store.aclose()
