"""Receives signed webhooks: each is handled once, and answered 2xx only when its effect is committed.

    receiver = WebhookReceiver(Inbox("billing"), secrets=SECRET, source="/orders", begin=engine.begin, handle=invoice)

    @app.post("/webhooks")
    def webhooks():
        return receiver.receive(flask.request.headers, flask.request.get_data())

Whoever sends again gets the same answer, and nothing happens again (I9). What fails is answered by an error, has left
nothing behind, and is handled as if it were the first when it comes again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from twicesafe.core.arrived import arrived
from twicesafe.core.message import DEFAULT_DATA_LIMIT, Message, check_text
from twicesafe.core.signatures import DEFAULT_TOLERANCE, ID, read_secrets, verify
from twicesafe.errors import InvalidMessageError, SignatureError
from twicesafe.inbox import AsyncInbox, Inbox

__all__ = ["Answer", "AsyncWebhookReceiver", "WebhookReceiver", "arrived", "read_secrets", "verify"]

_Headers: TypeAlias = Mapping[str, str]
_Event: TypeAlias = MutableMapping[str, Any]

_EVENT_ID: Final = "ce-id"


class Answer(NamedTuple):
    """What to answer, in the order in which a Flask view may return it."""

    body: bytes
    status: int
    headers: dict[str, str]


class _Receiver:
    def __init__(
        self, secrets: str | Iterable[str], source: str, tolerance: timedelta, clock: Callable[[], float]
    ) -> None:
        check_text("source", source)
        self._secrets = read_secrets(secrets)
        self._source = source
        self._tolerance = tolerance
        self._clock = clock

    def _message(self, headers: _Headers, body: bytes) -> Message | Answer:
        lines = {name.lower(): value for name, value in headers.items()}
        try:
            # As CloudEvents are read, so that it is one id with and without their headers.
            signed = unquote(verify(self._secrets, lines, body, self._clock(), self._tolerance))
            check_text(ID, signed)
            if _EVENT_ID not in lines:
                # Of a sender that speaks Standard Webhooks and not CloudEvents.
                kind = lines.get("content-type", "application/octet-stream")
                return Message(signed, self._source, "", "", "", body, datacontenttype=kind)
            message = arrived(lines, body)
            # What decides whether a message was handled before has to be signed, or known.
            if message.id != signed:
                raise InvalidMessageError(f"{_EVENT_ID} is not {ID}, and only that is signed")
            if message.source != self._source:
                raise InvalidMessageError("the message is from another source than this receiver's secret")
        except SignatureError as error:
            return _refusal(401, str(error))
        except InvalidMessageError as error:
            return _refusal(400, str(error))
        return message


class WebhookReceiver(_Receiver):
    """For blocking code, of any framework.

    `secrets`: one, or several while they are changed. `source` is who they were agreed with: the only one whose
    messages are taken. `begin()` gives a context that yields a connection in a transaction, or whatever Inbox.once
    takes, and commits at its end: `engine.begin` of SQLAlchemy's, say. `handle(connection, message)` has the effect,
    in that transaction. `tolerance` is how far the sender's clock may be off; `clock` is in seconds since the Unix
    epoch.

    Only the id and the data are signed: what the effect depends on has to be in the data.
    """

    def __init__(
        self,
        inbox: Inbox,
        *,
        secrets: str | Iterable[str],
        source: str,
        begin: Callable[[], AbstractContextManager[Any]],
        handle: Callable[[Any, Message], object],
        tolerance: timedelta = DEFAULT_TOLERANCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(secrets, source, tolerance, clock)
        self._inbox = inbox
        self._begin = begin
        self._handle = handle

    def receive(self, headers: _Headers, body: bytes) -> Answer:
        """Handle the webhook unless it was handled before; the answer, once that is committed.

        `body` exactly as it came, before anything parses it. What `handle`, the inbox and the commit raise comes
        through: answer it as any other failure of the application's, and the sender tries again.
        """
        message = self._message(headers, body)
        if isinstance(message, Answer):
            return message
        with self._begin() as connection:
            if self._inbox.once(connection, message):
                self._handle(connection, message)
        return _ACCEPTED


class AsyncWebhookReceiver(_Receiver):
    """WebhookReceiver, for asyncio. Is an ASGI application besides: mount it, or add it as the route of a POST.

    As an application it reads at most `limit` bytes of body.
    """

    def __init__(
        self,
        inbox: AsyncInbox,
        *,
        secrets: str | Iterable[str],
        source: str,
        begin: Callable[[], AbstractAsyncContextManager[Any]],
        handle: Callable[[Any, Message], Awaitable[object]],
        tolerance: timedelta = DEFAULT_TOLERANCE,
        clock: Callable[[], float] = time.time,
        limit: int = 4 * DEFAULT_DATA_LIMIT,
    ) -> None:
        super().__init__(secrets, source, tolerance, clock)
        self._inbox = inbox
        self._begin = begin
        self._handle = handle
        self._limit = limit

    async def receive(self, headers: _Headers, body: bytes) -> Answer:
        """See WebhookReceiver.receive."""
        message = self._message(headers, body)
        if isinstance(message, Answer):
            return message
        async with self._begin() as connection:
            if await self._inbox.once(connection, message):
                await self._handle(connection, message)
        return _ACCEPTED

    async def __call__(
        self,
        scope: _Event,
        receive: Callable[[], Awaitable[_Event]],
        send: Callable[[_Event], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"webhooks come by http, not by {scope['type']}")
        answer = _refusal(405, "webhooks come by POST", allow="POST")
        if scope["method"] == "POST":
            pieces = []
            size = 0
            more = True
            while more and size <= self._limit:
                event = await receive()
                if event["type"] == "http.disconnect":
                    return
                pieces.append(event.get("body", b""))
                size += len(pieces[-1])
                more = event.get("more_body", False)
            if size > self._limit:
                answer = _refusal(413, f"the body has more than {self._limit} bytes")
            else:
                headers = {name.decode("latin-1"): line.decode("latin-1") for name, line in scope["headers"]}
                answer = await self.receive(headers, b"".join(pieces))
        lines = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": lines})
        await send({"type": "http.response.body", "body": answer.body})


_ACCEPTED: Final = Answer(b"", 204, {})


def _refusal(status: int, why: str, **more: str) -> Answer:
    document = json.dumps({"title": why, "status": status}).encode()
    return Answer(document, status, {"content-type": "application/problem+json", **more})
