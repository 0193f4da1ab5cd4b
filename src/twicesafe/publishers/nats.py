"""Messages to NATS JetStream, by nats-py: each waits until a stream has stored it.

Headers are those of CloudEvents' binding to NATS (`ce-id` and so on). `Nats-Msg-Id` is the message's
source and id: within the stream's duplicate window (two minutes by default) a second copy is acknowledged and not
stored. By the id alone a message of another source could be taken for a copy, and be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.errors import BadSubjectError, MaxPayloadError
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError

from twicesafe.core.message import Message, ce_headers
from twicesafe.errors import NotDeliveredError, RefusedError
from twicesafe.publishers.destinations import DEFAULT_TIMEOUT, Destination, each, naming, of_type, seconds

__all__ = ["NatsPublisher"]

_MESSAGE_ID: Final = "Nats-Msg-Id"
_WILDCARDS: Final = frozenset("*>")
_COMMANDS: Final = ("$JS.", "$SYS.")
"""What begins so is done by the server: a message under `$JS.API.STREAM.DELETE.orders` would delete that stream."""


class NatsPublisher:
    """A Publisher to the stream that takes its subjects. Belongs to the event loop that it first publishes in.

    `url` is one server's or several of a cluster. `subject` is by default the message's type. `stream` is the one that
    has to take it, where that matters. `connect` is more for nats.connect: credentials, TLS. It connects when it first
    publishes, and again by itself; what is published meanwhile waits, up to `timeout`.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        subject: Destination = of_type,
        stream: str | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
        connect: Mapping[str, Any] | None = None,
    ) -> None:
        self._servers = [url] if isinstance(url, str) else list(url)
        self._subject = naming("subject", subject)
        self._stream = stream
        self._timeout = seconds(timeout)
        self._connect = {"max_reconnect_attempts": -1, "connect_timeout": self._timeout, **(connect or {})}
        self._opening = asyncio.Lock()
        self._client: Client | None = None
        self._jetstream: JetStreamContext | None = None

    async def publish(self, message: Message) -> None:
        """Returns when the stream has acknowledged the message, or that it has it already."""
        subject = self._subject(message)
        if not _WILDCARDS.isdisjoint(subject):
            raise RefusedError(f"{subject!r} is no subject to publish to: it has a wildcard")
        if subject.startswith(_COMMANDS):
            raise RefusedError(f"{subject!r} is no subject to publish to: it is a command to the server")
        event = dict(ce_headers(message))
        headers = {_MESSAGE_ID: f"{event['ce-source']} {event['ce-id']}", **event}
        try:
            async with asyncio.timeout(self._timeout):
                jetstream = await self._connected()
                await jetstream.publish(subject, message.data, stream=self._stream, headers=headers)
        except NoStreamResponseError as error:
            raise NotDeliveredError(f"no stream takes subject {subject!r}: add one, or the subject to one") from error
        except APIError as error:
            raise NotDeliveredError(f"JetStream did not store the message: {error.description}") from error
        except BadSubjectError as error:
            raise RefusedError(f"{subject!r} is no subject: it has white space or an empty part") from error
        except MaxPayloadError as error:
            raise RefusedError("the message is larger than the server's max_payload") from error
        except TimeoutError as error:
            raise NotDeliveredError(f"JetStream did not acknowledge the message within {self._timeout:g} s") from error

    async def publish_many(self, messages: Sequence[Message]) -> list[BaseException | None]:
        """Waits for all their acknowledgements together."""
        return await each(self.publish, messages)

    async def aclose(self) -> None:
        """Close the connection. A later publish opens another."""
        async with self._opening:
            client, self._client, self._jetstream = self._client, None, None
        if client is not None:
            with suppress(Exception):
                await client.close()

    async def _connected(self) -> JetStreamContext:
        async with self._opening:
            if self._client is None or self._jetstream is None or self._client.is_closed:
                self._client = await nats.connect(self._servers, **self._connect)
                # Its time-out is per message, and the one around it is what counts.
                self._jetstream = self._client.jetstream(timeout=self._timeout)
            return self._jetstream
