"""What goes on beside the storm, so that every trouble meets something, whatever the storm has left to do.

Whose cancellation a driver has taken for a failure of the network, ends all the same.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from os import urandom
from typing import Final

from twicesafe.cancelling import is_cancelled
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.record import Effects
from twicesafe.errors import StoreError
from twicesafe.stores.contract import AsyncStore
from twicesafe.storm.chaos.troubles import LOOK

ASKING: Final = 8
"""Tasks that ask the store what time it is while its network is in trouble, each with pauses of so many seconds."""
_PAUSE: Final = 0.02
PATIENCE: Final = 3.0
"""Seconds for one question to the store, or one write."""
_SECOND: Final = 1_000_000


async def keep_asking(store: AsyncStore) -> None:
    """Something is on its way over the network, until this is cancelled."""
    while not is_cancelled():
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await store.now()
        await asyncio.sleep(_PAUSE)


async def keep_writing(store: AsyncStore) -> None:
    """Something is to be flushed to the disk, until this is cancelled: keys of its own, claimed and released."""
    while not is_cancelled():
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                found = await store.claim(_claim())
                if type(found) is Claimed:
                    await store.release(found.ownership)
        await asyncio.sleep(LOOK)


def _claim() -> Claim:
    """One that nobody else makes. What is left of it is claimed anew by whoever might, and unknown to nobody."""
    fingerprint = GivenFingerprint(b"beside")
    return Claim(
        urandom(32), "beside the storm", "beside the storm", "", fingerprint, Effects.KEYED, urandom(16), _SECOND,
        60 * _SECOND,
    )  # fmt: skip
