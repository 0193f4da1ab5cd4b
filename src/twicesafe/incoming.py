"""A request's body on its way through: kept for the fingerprint, handed on to the application as it came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from twicesafe.core.capture import Capture
from twicesafe.core.carriers import body_may_carry
from twicesafe.core.presented import presented_key
from twicesafe.core.steps import FORWARD
from twicesafe.dealings import Dealings
from twicesafe.errors import BodyTooLargeError

ASGIScope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

LINGER: Final = 5.0
"""Seconds that a stream whose client is gone goes on for the sake of its record. Servers end their requests before they
tell the application to shut down, so it may hold up a shutdown, and `docker stop` kills after 10 s."""
_DISCONNECT: Final[Message] = {"type": "http.disconnect"}


class ClientGoneError(ConnectionError):
    """The client went away: before its request was whole, and nothing was claimed; or while its answer flowed."""


class Incoming(Dealings):
    """The side of a KeyedRequest that receives. Until something is claimed messages pass through untouched."""

    # On the class, so that a request pays for what it uses only.
    _scope: ASGIScope
    lines: Mapping[bytes, bytes] | None
    """The header lines by name; None where a name comes twice."""
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
    _capture: Capture | None = None
    """The answer, where it does not come in one piece."""
    _watch: asyncio.Task[None] | asyncio.TimerHandle | None = None
    """While an answer flows: for the client to hang up, then for the time to tell the application (`_told`)."""

    def plain_key(self) -> str | None:
        """What presented_key would give, where nothing has to be waited for nor refused: for nearly every request."""
        if self.lines is not None:
            policy = self.operation.policy
            line = self.lines.get(policy.header_name)
            if line is not None and policy.plain_key(line):
                return str(line, "ascii")
        return None

    async def presented_key(self) -> str | None:
        """The request's key, None where it may go without one. RequestError otherwise, and ClientGoneError.

        Reads the body where the key may stand in it.
        """
        policy, scope = self.operation.policy, self._scope
        lines = _lines(scope, policy.header_name)
        first_sent = _lines(scope, policy.first_sent.header_name) if policy.first_sent else []
        if not policy.fields:
            return presented_key(policy, lines, first_sent=first_sent)
        # Two lines of one name are of no type that a parser takes.
        content_type, content_encoding = (
            b",".join(_lines(scope, name)) for name in (b"content-type", b"content-encoding")
        )
        return presented_key(
            policy,
            lines,
            first_sent=first_sent,
            query=scope["query_string"],
            content_type=content_type,
            content_encoding=content_encoding,
            body=await self._whole_body() if body_may_carry(policy.fields, content_type) else b"",
        )

    @property
    def has_begun_reading(self) -> bool:
        """Whether messages were taken that the application has still to receive."""
        return self._first is not None or bool(self._early)

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
        if self._claim is None and self._result is None:
            # Also in a transaction that belongs to no key: such a request is as any other.
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

    async def _whole_body(self) -> bytes:
        """BodyTooLargeError where it is over the limit, ClientGoneError where it never becomes whole."""
        limit = self.operation.policy.body_limit
        if not self._whole:
            message = await self._receive()
            if self._parts is None and message["type"] == "http.request" and not message.get("more_body", False):
                self._first = message
                self._whole = True
            else:
                await self._read_on(message, limit)
        first = self._first
        if first is not None:
            body: bytes = first.get("body", b"")
            if len(body) <= limit:
                return body
        elif self._size <= limit:
            return b"".join(self._parts or ())
        raise BodyTooLargeError(f"the body of this operation may have at most {limit} bytes")

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

    async def _until_hang_up(self, gone: Callable[[], None]) -> None:
        """Call `gone` when the client hangs up. The application's own `receive` may never be called."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._watch = None
        gone()

    def _let_know(self) -> None:
        """The client of a flowing answer is gone: have the application know, now or in a while."""
        self._stop_watching()
        assert self._capture is not None
        if self._capture.recordable:
            self._watch = asyncio.get_running_loop().call_later(LINGER, self._show_hang_up)
        else:
            self._show_hang_up()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _show_hang_up(self) -> None:
        visible = self._visible = self._visible or asyncio.Event()
        visible.set()


def _lines(scope: ASGIScope, wanted: bytes) -> list[bytes]:
    return [line for name, line in scope["headers"] if name == wanted]
