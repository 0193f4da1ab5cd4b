"""A request's body on its way through: kept for the fingerprint, handed on to the application as it came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from twicesafe.core.steps import FORWARD
from twicesafe.dealings import Dealings

ASGIScope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

_DISCONNECT: Final[Message] = {"type": "http.disconnect"}


class ClientGoneError(ConnectionError):
    """The client went away: before its request was whole, and nothing was claimed; or while its answer flowed."""


class Incoming(Dealings):
    """The side of a KeyedRequest that receives. Until something is claimed messages pass through untouched."""

    # On the class, so that a request pays for what it uses only.
    _receive: Receive
    _whole = False
    """Whether the body has arrived to its end."""
    _first: Message | None = None
    """Its only part, where it came in one, until the application takes it."""
    _parts: list[bytes] | None = None
    _size = 0
    _early: deque[Message] | None = None
    """Messages that came before the application asked for them."""
    _sent = False
    """Whether the application's own answer has been passed on to its end."""
    _told = False
    """Whether the application was told of a hang-up while the exchange was open."""
    _watch: asyncio.Task[None] | asyncio.TimerHandle | None = None
    """While an answer flows: for the client to hang up, then for the time to tell the application (`_told`)."""

    @property
    def begun(self) -> bool:
        """Whether it is entered or refused."""
        return self._claim is not None or self._exchange is not None or self._result is not None

    async def receive(self) -> Message:
        """What the application receives: the very messages that came, then silence.

        A hang-up is none of its business while its answer is being recorded; it learns of one when it streams what is
        not recorded, or for longer than LINGER, and it is told that the exchange is over once its answer is complete.
        """
        first = self._first
        if first is not None:
            self._first = None
            return first
        if self._early:
            return self._early.popleft()
        if not self.begun:
            message = await self._receive()
            self._count(message, self.operation.policy.body_limit)
            return message
        if self._result is None or (self._result is FORWARD and not self._sent):
            # Frameworks end an answer of theirs at once when they are told of a hang-up: it has to have left before.
            visible = self._visible = self._visible or asyncio.Event()
            await visible.wait()
            if self._result is None:
                self._told = True
        return _DISCONNECT

    async def _body(self, limit: int) -> bytes | None:
        """The whole body; None where it is over the limit. ClientGoneError where it never becomes whole."""
        if not self._whole:
            message = await self._receive()
            if self._parts is None and message["type"] == "http.request" and not message.get("more_body", False):
                self._first = message
                self._whole = True
                body: bytes = message.get("body", b"")
                return body if len(body) <= limit else None
            await self._read_on(message, limit)
        if self._size > limit:
            return None
        return b"".join(self._parts or ())

    async def _read_on(self, message: Message, limit: int) -> None:
        early = self._early = self._early or deque()
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGoneError("the client hung up before its request was whole")
            self._count(message, limit)
            early.append(message)
            if self._whole or self._size > limit:
                return
            message = await self._receive()

    def _count(self, message: Message, limit: int) -> None:
        """Keep a part of the body, as long as there is not too much of it."""
        if message["type"] == "http.request":
            body = message.get("body", b"")
            parts = self._parts
            if parts is None:
                parts = self._parts = []
            self._size += len(body)
            if self._size > limit:
                parts.clear()
            elif body:
                parts.append(body)
            self._whole = not message.get("more_body", False)

    def _has_sent(self) -> None:
        self._sent = True
        if self._visible is not None:
            self._visible.set()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _show_hang_up(self) -> None:
        visible = self._visible = self._visible or asyncio.Event()
        visible.set()
