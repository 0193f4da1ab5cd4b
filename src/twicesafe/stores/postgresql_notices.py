"""What other processes are told: that a key is settled, and that there are messages for relays.

Each is a NOTIFY in a transaction of its own, after the commit that it tells of. Never inside that: NOTIFY takes a lock
at commit for which every other commit with one would queue. Both kinds come on one channel, and whoever listens takes
what is meant for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.postgresql import CHANNEL
from twicesafe.stores.postgresql_waiting import Lines
from twicesafe.stores.steps import Statement

HINT: Final = "outbox"

LOOK: Final = 10.0
"""Seconds between two questions whether the connection is still there."""

_STILL_THERE: Final = Statement("still_there", "SELECT 1", (), writes=False, returns=True)


def notice(payload: str) -> Statement:
    """What tells them. It is heard of at once, be it on a disk or not."""
    text = f"BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {CHANNEL}, '{payload}'; COMMIT"
    return Statement("notice", text, (), writes=False, returns=False)


async def hear(lines: Lines, told: Callable[[], None]) -> None:
    """Call `told` with each hint, until it is cancelled. Returns where none can be heard.

    StoreUnavailableError where the connection breaks, or cannot be had.
    """

    def payload(text: str) -> None:
        if text == HINT:
            told()

    try:
        line = await lines.listen(payload)
        if line is None:
            return
        # What came before the connection was not heard.
        told()
        try:
            while True:
                await asyncio.sleep(LOOK)
                await line.ask(_STILL_THERE)
        finally:
            await line.aclose()
    except Exception as error:
        if lines.failure(error) is None:
            raise
        raise StoreUnavailableError("the connection that hears of hints is lost") from error
