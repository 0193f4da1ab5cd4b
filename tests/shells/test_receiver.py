"""The receiver of webhooks as an ASGI application: what it says of HTTP itself."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.shells.probe import Wire
from twicesafe.inbox import AsyncInbox
from twicesafe.receiving import AsyncWebhookReceiver

SECRET = "whsec_" + "c2VjcmV0IG9mIHRoaXJ0eS10d28gYnl0ZXMgLi4uLi4="


def receiver(limit: int = 100) -> AsyncWebhookReceiver:
    async def handle(connection: Any, message: Any) -> None:
        raise AssertionError("nothing here is signed")

    def begin() -> Any:
        raise AssertionError("nothing here is signed")

    return AsyncWebhookReceiver(
        AsyncInbox("billing"), secrets=SECRET, source="/shop", begin=begin, handle=handle, limit=limit
    )


def test_other_methods_are_told_which_one_is_taken() -> None:
    """R4: whoever asks by another method learns by which it would be answered (RFC 9110, 15.5.6)."""
    reply = asyncio.run(Wire(receiver(), method="GET", body=b"").end())
    assert (reply.status, reply.header(b"allow")) == (405, b"POST")


def test_a_body_in_pieces_is_measured_as_a_whole() -> None:
    """H1: up to its limit a body is read whatever its pieces, and judged by its signature; over it nobody reads on."""
    fits = asyncio.run(Wire(receiver(), parts=[b"x"] * 100).end())
    assert fits.status == 401
    wire = Wire(receiver(), parts=[b"x"] * 200)
    over = asyncio.run(wire.end())
    assert over.status == 413
    assert len(wire._queue) == 99
