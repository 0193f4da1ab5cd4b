"""Files that an application has its server send, read as the pieces of a body: what is sent has to be recorded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from twicesafe.incoming import Message

PIECE: Final = 64 * 1024
BY_PATH: Final = "http.response.pathsend"
BY_DESCRIPTOR: Final = "http.response.zerocopysend"
FILES: Final = frozenset({BY_PATH, BY_DESCRIPTOR})
"""Messages that stand for a body, or for a part of one."""


async def pieces_of(message: Message) -> AsyncIterator[Message]:
    """The body that a message of FILES stands for."""
    if message["type"] == BY_DESCRIPTOR:
        async for piece in _read(message["file"].fileno(), message.get("offset"), message.get("count")):
            yield {"type": "http.response.body", "body": piece, "more_body": True}
        more = message.get("more_body", False)
    else:
        file = await asyncio.to_thread(Path(message["path"]).open, "rb")
        try:
            async for piece in _read(file.fileno(), None, None):
                yield {"type": "http.response.body", "body": piece, "more_body": True}
        finally:
            file.close()
        more = False
    yield {"type": "http.response.body", "body": b"", "more_body": more}


async def _read(descriptor: int, offset: int | None, count: int | None) -> AsyncIterator[bytes]:
    """From `offset`, or where the file stands, `count` bytes, or all that there are."""
    while count is None or count > 0:
        wanted = PIECE if count is None else min(PIECE, count)
        if offset is None:
            piece = await asyncio.to_thread(os.read, descriptor, wanted)
        else:
            piece = await asyncio.to_thread(os.pread, descriptor, wanted, offset)
        if not piece:
            return
        yield piece
        offset = None if offset is None else offset + len(piece)
        count = None if count is None else count - len(piece)
